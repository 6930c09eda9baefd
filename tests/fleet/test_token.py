"""Which tokens are strong enough; handshake proofs and frames, checked against the standard library's HMAC-SHA256."""

import hashlib
import hmac
import secrets

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.errors import UsageError
from perfkit.fleet.token import LENGTH_BYTES, MAC_BYTES, NONCE_BYTES, Sealer, is_proof, new_token, proof, read_token, weakness

NONCES = bytes(range(32)), bytes(range(32, 64))


def split(frame):
    length = int.from_bytes(frame[:LENGTH_BYTES], "big")
    body, mac = frame[LENGTH_BYTES : LENGTH_BYTES + length], frame[LENGTH_BYTES + length :]
    assert len(mac) == MAC_BYTES
    return body, mac


def test_a_proof_is_an_hmac_over_side_and_nonces():
    expected = hmac.new(b"secret", b"machine knows the token" + NONCES[0] + NONCES[1], hashlib.sha256).digest()
    assert proof("secret", "machine", *NONCES) == expected
    assert is_proof(expected, "secret", "machine", *NONCES)


@pytest.mark.parametrize(
    ("token", "side", "nonces"),
    [("other", "machine", NONCES), ("secret", "driver", NONCES), ("secret", "machine", (NONCES[1], NONCES[0])), ("secret", "machine", (NONCES[0], bytes(NONCE_BYTES)))],
)  # fmt: skip
def test_a_proof_proves_one_token_one_side_and_one_pair_of_nonces(token, side, nonces):
    assert not is_proof(proof("secret", "machine", *NONCES), token, side, *nonces)


@given(st.lists(st.binary(max_size=50), max_size=5))
def test_frames_are_opened_in_their_order(bodies):
    sealer, opener = Sealer("t", "driver", *NONCES), Sealer("t", "driver", *NONCES)
    frames = [split(sealer.seal(body)) for body in bodies]
    assert [body for body, _ in frames] == bodies
    assert all(opener.is_next(body, mac) for body, mac in frames)


def test_a_frame_that_is_repeated_left_out_changed_or_sent_back_is_not_the_next():
    sealer = Sealer("t", "driver", *NONCES)
    first, second = split(sealer.seal(b"one")), split(sealer.seal(b"two"))

    def opened(*frames, key="t", sender="driver"):
        opener = Sealer(key, sender, *NONCES)
        return [opener.is_next(*frame) for frame in frames]

    assert opened(first, second) == [True, True]
    assert opened(first, first) == [True, False]
    assert opened(second) == [False]
    assert opened((b"onE", first[1])) == [False]
    assert opened(first, sender="machine") == [False]
    assert opened(first, key="u") == [False]


@pytest.mark.parametrize("token", ["secret", "a" * 40, "0123456789abcdef", "deadbeef" * 4, "ab" * 20])
def test_a_token_that_could_be_guessed_is_refused_with_a_way_to_make_one(monkeypatch, tmp_path, token):
    monkeypatch.setenv("PERFKIT_FLEET_TOKEN", token)
    with pytest.raises(UsageError, match=r"PERFKIT_FLEET_TOKEN: it could be guessed: .* such as by `openssl rand -hex 24`"):
        read_token(None)
    file = tmp_path / "token.txt"
    file.write_text(f"{token}\n")
    with pytest.raises(UsageError, match=r"token\.txt: it could be guessed"):
        read_token(file)


@pytest.mark.parametrize(
    "make", [lambda: secrets.token_hex(16), lambda: secrets.token_urlsafe(16), new_token, lambda: "correct horse battery staple"]
)
def test_random_tokens_are_strong_enough(monkeypatch, make):
    for _ in range(200):
        token = make()
        assert weakness(token) == ""
    monkeypatch.setenv("PERFKIT_FLEET_TOKEN", f" {token}\n")
    assert read_token(None) == token
