//! Checksums: CRC-32C (Castagnoli) over batches of magic 2, CRC-32 (IEEE) over older messages.
//! Both select the CPU's instructions at run time.

use crc_fast::{CrcAlgorithm, Digest};

/// CRC-32C of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    low(crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes))
}

/// CRC-32 of `bytes`.
pub fn crc32(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// A CRC-32C over several pieces of bytes.
#[derive(Clone, Copy, Debug)]
pub struct Crc32c(Digest);

impl Crc32c {
    /// The checksum of no bytes.
    pub fn new() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    /// Adds the next piece.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum of all pieces added.
    pub fn value(&self) -> u32 {
        low(self.0.finalize())
    }
}

impl Default for Crc32c {
    fn default() -> Self {
        Self::new()
    }
}

fn low(crc: u64) -> u32 {
    u32::try_from(crc & 0xffff_ffff).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_values_of_both_polynomials_hold() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn pieces_give_the_checksum_of_the_whole() {
        let bytes: Vec<u8> = (0..=255).collect();
        for at in 0..bytes.len() {
            let (head, tail) = bytes.split_at(at);
            let mut crc = Crc32c::new();
            crc.update(head);
            crc.update(tail);
            assert_eq!(crc.value(), crc32c(&bytes));
        }
    }
}
