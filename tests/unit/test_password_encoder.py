"""Passwords as Kafka encrypts them in ZooKeeper."""

from collections.abc import Mapping

import pytest

from krust.password_encoder import MOST_ITERATIONS, PasswordEncoder

SECRET = "the-encoders-secret"
PASSWORD = "pässword-of-a-store 🔑"
BY_KAFKA = {
    "AES/CBC/PKCS5Padding": (
        "initializationVector:rMHTH5NpQQRmlzLwIwRs7w==,keyLength:128,salt:sd43pljwPRUUVPMJBnY"
        "dGSuc5PkGgDdLgCIKfGVz2QFcMFaxISql6g84Au1v18UaY4iNPr9144xY9DJT5VDmfhqZ+9hBhF7VlTA+jwj"
        "8o3tpk14yJ1PY7tDaAMcX7nxa6Z0h3no8/jNd7ChxcidbY9UkMawDRt6gemhiBeOhUSKeLUG7q2zs4u2oEtg"
        "UEe4HeJWqG1dbI4o1YyVwhJVasrCpInRYqu1UxI4AfzLbDfkkJGX9eULyvMM3KY575y9K5Ji9FGNE+mWZ0bT"
        "v/ibvTp2DVd69nz+/xfUNLv6z9ErpksdFvHC+7nI7FTFeP5taPJST6pG5r6MTxHkHwgLx1w==,keyFactory"
        "Algorithm:PBKDF2WithHmacSHA512,cipherAlgorithm:AES/CBC/PKCS5Padding,iterations:4096,"
        "passwordLength:22,encryptedPassword:Fa0YPfOG4jKoTVRMuxcLVnLmkj5kJITg6wZoDCbMaMM="
    ),
    "AES/GCM/NoPadding": (
        "initializationVector:BqfSakovuZBlH9cz,keyLength:256,salt:Iz34+Lt4PHzGwtgxkkzjLtgx2zS"
        "Hvlr+u1VTy2Nj0SIU4k65Cg423KtoK5IzYxjwdK04nJ8EwRVXJH8u7K+mkeCcCY9UfAv4WhkwS0O8e7e5LmY"
        "9QVP61I1262YTfD7DHC6qBetqbmnESH6aPbwCfOBBIgJfWpF2RtXjOC7Q/kIaWpPFwgaF+X1smdHJE3J7Kj0"
        "l58k43PhnPUirVv7EYngYd2lmybu2vDGo+nHi9KngIbPLYQpLCFPjUC+dYHGlw8XGocyZQUaRQ17ZY1btm/7"
        "Wv7CY9INB6xnaxtCKGQuFvLcl0OjZsxFijTw2HCCzW6sUZj7mF8u2H1dEKGoHxw==,keyFactoryAlgorith"
        "m:PBKDF2WithHmacSHA256,cipherAlgorithm:AES/GCM/NoPadding,authenticationTagLength:128"
        ",iterations:4096,passwordLength:22,encryptedPassword:w7xJUfSMb3iIJClK8eyzA/pHSIL+0Wu"
        "qPEqX5pS0qU8TRQPiUx4Pv1w="
    ),
}
"""What PasswordEncoder of Kafka 3.9.1 made of them: by its defaults, and with a key of 256 bits by
PBKDF2WithHmacSHA256."""


@pytest.mark.parametrize("cipher", BY_KAFKA)
def test_what_kafka_encoded_is_decoded_with_its_secret_alone(cipher: str) -> None:
    assert PasswordEncoder(SECRET).decode(BY_KAFKA[cipher]) == PASSWORD
    with pytest.raises(ValueError, match="does not decrypt it"):
        PasswordEncoder("another").decode(BY_KAFKA[cipher])


@pytest.mark.parametrize("cipher", BY_KAFKA)
def test_what_is_encoded_has_kafkas_fields(cipher: str) -> None:
    made = PasswordEncoder(SECRET, cipher=cipher).encode(PASSWORD)
    assert set(fields(made)) == set(fields(BY_KAFKA[cipher]))
    ours, theirs = fields(made), fields(BY_KAFKA[cipher])
    assert len(str(ours["salt"])) == len(str(theirs["salt"]))
    assert ours["passwordLength"] == theirs["passwordLength"]


@pytest.mark.parametrize("cipher", BY_KAFKA)
@pytest.mark.parametrize("key_bits", [128, 192, 256])
@pytest.mark.parametrize("key_factory", ["PBKDF2WithHmacSHA1", "PBKDF2WithHmacSHA384"])
def test_every_way_to_encode_is_decoded(cipher: str, key_bits: int, key_factory: str) -> None:
    made = PasswordEncoder(SECRET, key_factory, cipher, key_bits, 2)
    for password in (PASSWORD, "", "x" * 16):
        assert PasswordEncoder(SECRET).decode(made.encode(password)) == password


def test_the_parameters_are_settings_as_java_reads_them() -> None:
    settings = {
        "password.encoder.secret": SECRET,
        "password.encoder.cipher.algorithm": "aes/gcm/nopadding",
        "password.encoder.keyfactory.algorithm": "PBKDF2WithHmacSHA1",
        "password.encoder.key.length": "192",
        "password.encoder.iterations": "1024",
    }
    encoder = PasswordEncoder.of(lambda name: settings.get(name))
    assert encoder is not None
    found = fields(encoder.encode(PASSWORD))
    assert found.pop("authenticationTagLength") == "128"
    names = ("cipherAlgorithm", "keyFactoryAlgorithm", "keyLength", "iterations")
    assert [found[name] for name in names] == [
        "AES/GCM/NoPadding",
        "PBKDF2WithHmacSHA1",
        "192",
        "1024",
    ]
    assert PasswordEncoder.of(lambda _: None) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"iterations": str(MOST_ITERATIONS + 1)},
        {"iterations": "0"},
        {"iterations": "many"},
        {"keyLength": "8"},
        {"keyLength": "1" * 5000},
        {"keyFactoryAlgorithm": "Scrypt"},
        {"cipherAlgorithm": "DES/CBC/PKCS5Padding"},
        {"initializationVector": ""},
        {"salt": "not Base64"},
        {"encryptedPassword": ""},
        {"encryptedPassword": "AAAA"},
        {"passwordLength": "1"},
        {"passwordLength": None},
    ],
)
def test_a_damaged_text_is_an_error_that_shows_nothing(wrong: Mapping[str, str | None]) -> None:
    found = {**fields(BY_KAFKA["AES/CBC/PKCS5Padding"]), **wrong}
    text = ",".join(f"{name}:{value}" for name, value in found.items() if value is not None)
    with pytest.raises(ValueError, match=r"^(its|it is no|password\.encoder)") as caught:
        PasswordEncoder(SECRET).decode(text)
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize("text", ["", "plain", ",,,", ":", "salt:x"])
def test_what_is_no_encoded_password_is_said_to_be_none(text: str) -> None:
    with pytest.raises(ValueError, match="it is no encrypted password"):
        PasswordEncoder(SECRET).decode(text)


def fields(text: str) -> dict[str, str | None]:
    pairs = (each.rpartition(":") for each in text.split(","))
    return {name: value for name, _, value in pairs}
