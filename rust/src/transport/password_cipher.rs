//! AES for passwords among stored settings (`password.encoder.*`), by Java's names of its modes.
//!
//! Keys have 128, 192 or 256 bits. `CBC/PKCS5Padding` has an IV of 16 bytes; `GCM/NoPadding` one of
//! 12, and a tag of 16 bytes after the text.
//! Why both are here: Python has no AES of its own. Keys are derived there (PBKDF2, by `hashlib`).
//! Not promised: CBC finds no change of the text; whoever reads it has to check what comes out.

use aes::{Aes128, Aes192, Aes256};
use aes_gcm::aead::Aead;
use aes_gcm::{AesGcm, Nonce};
use cbc::cipher::block_padding::Pkcs7;
use cbc::cipher::consts::{U12, U16};
use cbc::cipher::{
    BlockCipherDecrypt, BlockCipherEncrypt, BlockModeDecrypt, BlockModeEncrypt, BlockSizeUser,
    KeyInit, KeyIvInit,
};

/// A mode of AES.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CipherMode {
    /// `AES/CBC/PKCS5Padding`.
    Cbc,
    /// `AES/GCM/NoPadding`.
    Gcm,
}

impl CipherMode {
    /// The mode that Java calls by this name; `None`: it is not offered.
    pub fn of(name: &str) -> Option<Self> {
        match name {
            "AES/CBC/PKCS5Padding" => Some(Self::Cbc),
            "AES/GCM/NoPadding" => Some(Self::Gcm),
            _ => None,
        }
    }

    /// A text, encrypted; `None`: the key or the IV has a length that the cipher does not have.
    pub fn encrypt(self, key: &[u8], iv: &[u8], text: &[u8]) -> Option<Vec<u8>> {
        match key.len() {
            16 => encrypted::<Aes128>(self, key, iv, text),
            24 => encrypted::<Aes192>(self, key, iv, text),
            32 => encrypted::<Aes256>(self, key, iv, text),
            _ => None,
        }
    }

    /// What was encrypted; `None`: this key and IV did not encrypt it.
    pub fn decrypt(self, key: &[u8], iv: &[u8], bytes: &[u8]) -> Option<Vec<u8>> {
        match key.len() {
            16 => decrypted::<Aes128>(self, key, iv, bytes),
            24 => decrypted::<Aes192>(self, key, iv, bytes),
            32 => decrypted::<Aes256>(self, key, iv, bytes),
            _ => None,
        }
    }
}

fn encrypted<Aes>(mode: CipherMode, key: &[u8], iv: &[u8], text: &[u8]) -> Option<Vec<u8>>
where
    Aes: KeyInit + BlockCipherEncrypt + BlockSizeUser<BlockSize = U16>,
{
    match mode {
        CipherMode::Cbc => {
            let cipher = cbc::Encryptor::<Aes>::new_from_slices(key, iv).ok()?;
            Some(cipher.encrypt_padded_vec::<Pkcs7>(text))
        }
        CipherMode::Gcm => {
            let cipher = AesGcm::<Aes, U12>::new_from_slice(key).ok()?;
            cipher.encrypt(&Nonce::try_from(iv).ok()?, text).ok()
        }
    }
}

fn decrypted<Aes>(mode: CipherMode, key: &[u8], iv: &[u8], bytes: &[u8]) -> Option<Vec<u8>>
where
    Aes: KeyInit + BlockCipherEncrypt + BlockCipherDecrypt + BlockSizeUser<BlockSize = U16>,
{
    match mode {
        CipherMode::Cbc => {
            let cipher = cbc::Decryptor::<Aes>::new_from_slices(key, iv).ok()?;
            cipher.decrypt_padded_vec::<Pkcs7>(bytes).ok()
        }
        CipherMode::Gcm => {
            let cipher = AesGcm::<Aes, U12>::new_from_slice(key).ok()?;
            cipher.decrypt(&Nonce::try_from(iv).ok()?, bytes).ok()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODES: [(CipherMode, &[u8]); 2] =
        [(CipherMode::Cbc, &[7; 16]), (CipherMode::Gcm, &[7; 12])];

    #[test]
    fn every_mode_and_key_length_gives_the_text_back() {
        for (mode, iv) in MODES {
            for length in [16, 24, 32] {
                for text in [&b""[..], b"a password", &[9; 16]] {
                    let key = vec![3; length];
                    let made = mode.encrypt(&key, iv, text).unwrap();
                    assert_ne!(made, text);
                    assert_eq!(mode.decrypt(&key, iv, &made).as_deref(), Some(text));
                }
            }
        }
    }

    #[test]
    fn nothing_comes_of_wrong_lengths_and_cut_texts() {
        for (mode, iv) in MODES {
            let made = mode.encrypt(&[3; 16], iv, b"a password").unwrap();
            for (key, iv, text) in [
                (&[3; 15][..], iv, &made[..]),
                (&[], iv, &made),
                (&[3; 16], &iv[1..], &made),
                (&[3; 16], &[], &made),
                (&[3; 16], iv, &made[1..]),
                (&[3; 16], iv, &[]),
            ] {
                assert_eq!(mode.decrypt(key, iv, text), None);
            }
        }
    }

    #[test]
    fn another_cipher_is_not_offered() {
        assert_eq!(CipherMode::of("DES/CBC/PKCS5Padding"), None);
    }
}
