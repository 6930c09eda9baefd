#!/usr/bin/env bash
# Builds an image and uses it, on a Debian machine without a container engine or an image registry: bash containers/build-on-debian.sh [cpu|cuda]
# Debian's own Python stands in for the python image. It needs root, the packages buildah and debootstrap, and 10 GB under $TMPDIR for cuda.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${1:-cpu}
work=$(mktemp -d)
builder=(buildah --storage-driver vfs --root "$work/images" --runroot "$work/state")
trap '"${builder[@]}" rm --all >/dev/null || true; "${builder[@]}" rmi --all --force >/dev/null || true; rm -rf "$work"' EXIT

codename=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
echo "== the base: Debian $codename with its Python"
debootstrap --variant=minbase --include=python3,python3-pip,ca-certificates "$codename" "$work/base" >"$work/debootstrap.log"
ln -s python3 "$work/base/usr/bin/python"
rm -f "$work"/base/usr/lib/python3*/EXTERNALLY-MANAGED # the image's Python is perfkit's alone
container=$("${builder[@]}" from scratch)
"${builder[@]}" add --quiet "$container" "$work/base" / >/dev/null
"${builder[@]}" commit --quiet "$container" docker.io/library/python:debian >/dev/null

echo "== the image $target"
mounts=()
for path in /etc/ssl/certs /etc/resolv.conf /etc/pip.conf; do # how this machine reaches its package index
  [[ -e $path ]] && mounts+=(--volume "$path:$path:ro")
done
"${builder[@]}" bud --quiet --isolation chroot --network host --pull-never --format docker "${mounts[@]}" \
  --ignorefile containers/Dockerfile.dockerignore --file containers/Dockerfile --target "$target" \
  --build-arg PYTHON=debian --build-arg REVISION="$(git rev-parse HEAD)" --tag "perfkit:$target" .
"${builder[@]}" images

echo "== used, as the image's user"
container=$("${builder[@]}" from --pull-never "localhost/perfkit:$target")
inside=("${builder[@]}" run --isolation chroot --network host "$container" --)
"${inside[@]}" id
"${inside[@]}" perfkit --version
"${inside[@]}" python /opt/perfkit/healthcheck.py && echo "healthy while nothing is served"
mkfifo "$work/stdin" # whose end ends the server
"${inside[@]}" perfkit serve --http-port 8000 --model simple --exit-with-stdin <"$work/stdin" >"$work/serve.log" 2>&1 &
exec 3>"$work/stdin"
until grep -q '"ready"' "$work/serve.log"; do
  kill -0 $! || { cat "$work/serve.log"; exit 1; }
  sleep 0.2
done
"${inside[@]}" python /opt/perfkit/healthcheck.py && echo "healthy while it serves"
measure() { # 5: a busy machine spoiled the figures, not the image
  "${inside[@]}" perfkit run "$@" --quiet || (($? == 5))
}
measure http://127.0.0.1:8000 -m simple -c 1,2 --duration 1s --out url
exec 3>&-
wait
measure densenet --set measure.duration=2s --set measure.repetitions=1 --out densenet
