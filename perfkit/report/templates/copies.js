"use strict";
// beside each command a button that copies it, also from a page that was opened as a file
for (const command of document.querySelectorAll("pre.command")) {
  const element = (name, className, text = "") => Object.assign(document.createElement(name), { className, textContent: text });
  const beside = element("div", "with-copy"), button = element("button", "copy"), word = element("span", "", "Copy"), said = element("span", "unseen");
  button.type = "button";
  button.append(word, element("span", "unseen", " the command"));
  said.setAttribute("role", "status");
  command.replaceWith(beside);
  beside.append(command, button, said);
  button.addEventListener("click", async () => {
    let isCopied = true;
    try {
      await navigator.clipboard.writeText(command.textContent);
    } catch { // not permitted, or the page came over HTTP
      getSelection().selectAllChildren(command);
      isCopied = document.execCommand("copy");
    }
    word.textContent = isCopied ? "Copied" : "Selected";
    said.textContent = isCopied ? "The command is copied." : "The command is selected: copy it with Control and C.";
    setTimeout(() => { word.textContent = "Copy"; said.textContent = ""; }, 3000);
  });
}
