//! Signatures of tokens: ring as the cryptography of `jsonwebtoken`.
//!
//! krust has ring for TLS already, and jsonwebtoken brings aws-lc or RustCrypto in its place. Only
//! public keys exist here: nothing signs, and no key is a shared secret.

use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve};
use jsonwebtoken::signature::{self, Verifier};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind, EncodingKey};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents,
    UnparsedPublicKey, VerificationAlgorithm,
};

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: no_signer,
    verifier_factory: verifier,
    // Only thumbprints and the making of keys need them.
    key_utils: KeyUtils::new_unimplemented(),
};

/// Has jsonwebtoken check signatures with ring. Further calls change nothing.
pub(super) fn install() {
    let _ = PROVIDER.install_default();
}

/// The public key of these parameters; `None`: it is none that ring can use.
pub(super) fn decoding_key(parameters: &AlgorithmParameters) -> Option<DecodingKey> {
    match parameters {
        AlgorithmParameters::RSA(it) => DecodingKey::from_rsa_components(&it.n, &it.e).ok(),
        AlgorithmParameters::EllipticCurve(it) if is_known(&it.curve) => {
            DecodingKey::from_ec_components(&it.x, &it.y).ok()
        }
        AlgorithmParameters::OctetKeyPair(it) if it.curve == EllipticCurve::Ed25519 => {
            DecodingKey::from_ed_components(&it.x).ok()
        }
        _ => None,
    }
}

fn is_known(curve: &EllipticCurve) -> bool {
    matches!(curve, EllipticCurve::P256 | EllipticCurve::P384)
}

fn no_signer(_: &Algorithm, _: &EncodingKey) -> Result<Box<dyn JwtSigner>, Error> {
    Err(ErrorKind::InvalidAlgorithm.into())
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, Error> {
    if algorithm.family() != key.family() || key.family() == AlgorithmFamily::Hmac {
        return Err(ErrorKind::InvalidAlgorithm.into());
    }
    Ok(Box::new(RingVerifier { algorithm: *algorithm, key: key.clone() }))
}

/// A key and how it signs.
struct RingVerifier {
    algorithm: Algorithm,
    key: DecodingKey,
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        let wrong = |_| signature::Error::new();
        match self.key.kind() {
            DecodingKeyKind::RsaModulusExponent { n, e } => {
                let rules = rsa(self.algorithm).ok_or_else(signature::Error::new)?;
                RsaPublicKeyComponents { n, e }.verify(rules, message, signature).map_err(wrong)
            }
            DecodingKeyKind::SecretOrDer(point) => {
                let rules = curve(self.algorithm).ok_or_else(signature::Error::new)?;
                UnparsedPublicKey::new(rules, point).verify(message, signature).map_err(wrong)
            }
        }
    }
}

fn rsa(algorithm: Algorithm) -> Option<&'static RsaParameters> {
    match algorithm {
        Algorithm::RS256 => Some(&RSA_PKCS1_2048_8192_SHA256),
        Algorithm::RS384 => Some(&RSA_PKCS1_2048_8192_SHA384),
        Algorithm::RS512 => Some(&RSA_PKCS1_2048_8192_SHA512),
        Algorithm::PS256 => Some(&RSA_PSS_2048_8192_SHA256),
        Algorithm::PS384 => Some(&RSA_PSS_2048_8192_SHA384),
        Algorithm::PS512 => Some(&RSA_PSS_2048_8192_SHA512),
        _ => None,
    }
}

fn curve(algorithm: Algorithm) -> Option<&'static dyn VerificationAlgorithm> {
    match algorithm {
        Algorithm::ES256 => Some(&ECDSA_P256_SHA256_FIXED),
        Algorithm::ES384 => Some(&ECDSA_P384_SHA384_FIXED),
        Algorithm::EdDSA => Some(&ED25519),
        _ => None,
    }
}
