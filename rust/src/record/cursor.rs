//! A cursor over borrowed bytes, and the primitive types of record formats: big-endian numbers of
//! fixed size, zigzag varints of 1-5 (int32) or 1-10 (int64) bytes.
//! Invariant: the cursor never leaves the bytes. After a failed read its position is undefined.

/// Bytes still to be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    /// The bytes not yet read.
    pub rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) const fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    /// The next `N` bytes.
    #[inline(always)]
    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*head)
    }

    #[inline(always)]
    pub(crate) fn int8(&mut self) -> Option<i8> {
        self.array().map(i8::from_be_bytes)
    }

    #[inline(always)]
    pub(crate) fn int16(&mut self) -> Option<i16> {
        self.array().map(i16::from_be_bytes)
    }

    #[inline(always)]
    pub(crate) fn int32(&mut self) -> Option<i32> {
        self.array().map(i32::from_be_bytes)
    }

    #[inline(always)]
    pub(crate) fn int64(&mut self) -> Option<i64> {
        self.array().map(i64::from_be_bytes)
    }

    /// The next `len` bytes.
    #[inline(always)]
    pub(crate) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(head)
    }

    /// Bytes after their varint length; -1 is null, anything below fails.
    #[inline(always)]
    pub(crate) fn nullable(&mut self) -> Option<Option<&'a [u8]>> {
        match self.varint()? {
            -1 => Some(None),
            len => self.bytes(usize::try_from(len).ok()?).map(Some),
        }
    }

    /// Bytes after their int32 length; -1 is null, anything below fails.
    pub(crate) fn nullable32(&mut self) -> Option<Option<&'a [u8]>> {
        match self.int32()? {
            -1 => Some(None),
            len => self.bytes(usize::try_from(len).ok()?).map(Some),
        }
    }

    /// A zigzag int32.
    #[inline(always)]
    pub(crate) fn varint(&mut self) -> Option<i32> {
        match *self.rest {
            [first @ ..0x80, ref rest @ ..] => {
                self.rest = rest;
                Some(zigzag32(u32::from(first)))
            }
            [first, second @ ..0x80, ref rest @ ..] => {
                self.rest = rest;
                Some(zigzag32(u32::from(first & 0x7f) | u32::from(second) << 7))
            }
            _ => self.varint_slow(),
        }
    }

    /// A zigzag int64.
    #[inline(always)]
    pub(crate) fn varlong(&mut self) -> Option<i64> {
        match *self.rest {
            [first @ ..0x80, ref rest @ ..] => {
                self.rest = rest;
                Some(zigzag64(u64::from(first)))
            }
            [first, second @ ..0x80, ref rest @ ..] => {
                self.rest = rest;
                Some(zigzag64(u64::from(first & 0x7f) | u64::from(second) << 7))
            }
            _ => self.varlong_slow(),
        }
    }

    fn varint_slow(&mut self) -> Option<i32> {
        let mut raw = 0u32;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.array()?;
            raw |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return (shift < 28 || byte < 0x10).then(|| zigzag32(raw));
            }
        }
        None
    }

    fn varlong_slow(&mut self) -> Option<i64> {
        let mut raw = 0u64;
        for shift in [0, 7, 14, 21, 28, 35, 42, 49, 56, 63] {
            let [byte] = self.array()?;
            raw |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return (shift < 63 || byte < 2).then(|| zigzag64(raw));
            }
        }
        None
    }
}

#[inline(always)]
pub(crate) const fn zigzag32(raw: u32) -> i32 {
    (raw >> 1) as i32 ^ -((raw & 1) as i32)
}

#[inline(always)]
pub(crate) const fn zigzag64(raw: u64) -> i64 {
    (raw >> 1) as i64 ^ -((raw & 1) as i64)
}

/// Appends a zigzag varint; an int32 takes at most 5 bytes.
#[inline]
pub(crate) fn put_varint(out: &mut Vec<u8>, value: i64) {
    let mut raw = ((value << 1) ^ (value >> 63)) as u64;
    while raw >= 0x80 {
        out.push(low_byte(raw) | 0x80);
        raw >>= 7;
    }
    out.push(low_byte(raw));
}

/// Bytes that [`put_varint`] takes for `value`: 1-10.
#[inline]
pub(crate) const fn varint_size(value: i64) -> usize {
    let raw = ((value << 1) ^ (value >> 63)) as u64;
    (70 - (raw | 1).leading_zeros() as usize) / 7
}

/// Appends bytes after their varint length; null is -1.
#[inline]
pub(crate) fn put_nullable(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        None => put_varint(out, -1),
        Some(bytes) => {
            put_varint(out, length(bytes.len()));
            out.extend_from_slice(bytes);
        }
    }
}

/// Bytes that [`put_nullable`] takes.
#[inline]
pub(crate) fn nullable_size(bytes: Option<&[u8]>) -> usize {
    bytes.map_or(1, |bytes| varint_size(length(bytes.len())) + bytes.len())
}

/// A length as a signed number; slices never exceed `i64::MAX`.
#[inline]
pub(crate) fn length(len: usize) -> i64 {
    i64::try_from(len).unwrap_or(i64::MAX)
}

#[inline]
const fn low_byte(raw: u64) -> u8 {
    (raw & 0x7f) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip_and_have_the_predicted_size() {
        let mut values = vec![0, -1, 1, 63, -64, 64, -65, i64::MAX, i64::MIN];
        values.extend((0..63).flat_map(|bit| [1i64 << bit, -(1i64 << bit), (1i64 << bit) - 1]));
        for value in values {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            assert_eq!(out.len(), varint_size(value), "{value}");
            assert_eq!(Cursor::new(&out).varlong(), Some(value));
            let narrow = i32::try_from(value).ok();
            assert_eq!(Cursor::new(&out).varint(), narrow, "{value}");
        }
    }

    #[test]
    fn a_varint_that_never_ends_is_refused() {
        assert_eq!(Cursor::new(&[0xff; 20]).varint(), None);
        assert_eq!(Cursor::new(&[0xff; 20]).varlong(), None);
        assert_eq!(Cursor::new(&[0x80]).varint(), None);
    }
}
