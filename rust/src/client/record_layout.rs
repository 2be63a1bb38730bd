//! Splits a block of bytes into records by the literals that end their fields (`key TAB value LF`).
//!
//! A field ends at the first occurrence of its literal. A record ends with its last literal, so the
//! rest of a block, which has no end yet, belongs to the next block. Pure: all results borrow from
//! the block.
//! Not promised: support of formats that begin with a literal or end with a field. The caller
//!     handles those.

/// The part of a record that a field of the text becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldRole {
    /// The record's key.
    Key,
    /// The record's value.
    Value,
    /// None; the field is skipped.
    Unused,
}

/// The fields of a record in their order, each with the literal that ends it.
#[derive(Clone, Debug)]
pub struct RecordLayout {
    fields: Vec<(FieldRole, Vec<u8>)>,
}

/// The fields of one record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordFields<'a> {
    /// `None`: the layout has no key.
    pub key: Option<&'a [u8]>,
    /// `None`: the layout has no value.
    pub value: Option<&'a [u8]>,
}

impl RecordLayout {
    /// `None` if there is no field, or a literal is empty.
    pub fn new(fields: Vec<(FieldRole, Vec<u8>)>) -> Option<Self> {
        let ends = fields.iter().all(|(_, literal)| !literal.is_empty());
        (ends && !fields.is_empty()).then_some(Self { fields })
    }

    /// The record at the start of `block` and the bytes after it; `None` if the record has no end.
    pub fn split_record<'a>(&self, block: &'a [u8]) -> Option<(RecordFields<'a>, &'a [u8])> {
        let (mut record, mut rest) = (RecordFields::default(), block);
        for (role, literal) in &self.fields {
            let (field, after) = split_at_first(rest, literal)?;
            match role {
                FieldRole::Key => record.key = Some(field),
                FieldRole::Value => record.value = Some(field),
                FieldRole::Unused => {}
            }
            rest = after;
        }
        Some((record, rest))
    }
}

/// The bytes before the first `literal` and after it.
fn split_at_first<'a>(bytes: &'a [u8], literal: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let first = *literal.first()?;
    let mut from = 0;
    loop {
        let at = from + find(bytes.get(from..)?, first)?;
        let (field, found) = bytes.split_at_checked(at)?;
        if let Some(after) = found.strip_prefix(literal) {
            return Some((field, after));
        }
        from = at + 1;
    }
}

/// The first position of `byte`. Compares 32 bytes at once, which the compiler vectorizes.
fn find(bytes: &[u8], byte: u8) -> Option<usize> {
    let chunks = bytes.chunks_exact(32);
    let without = |chunk: &&[u8]| !chunk.iter().fold(false, |any, one| any | (*one == byte));
    let passed = chunks.take_while(without).count() * 32;
    let place = bytes.get(passed..)?.iter().position(|one| *one == byte)?;
    Some(passed + place)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all<'a>(layout: &RecordLayout, mut block: &'a [u8]) -> (Vec<RecordFields<'a>>, &'a [u8]) {
        let mut records = Vec::new();
        while let Some((record, rest)) = layout.split_record(block) {
            records.push(record);
            block = rest;
        }
        (records, block)
    }

    fn layout(fields: &[(FieldRole, &str)]) -> RecordLayout {
        let fields = fields.iter().map(|(role, text)| (*role, text.as_bytes().to_vec()));
        RecordLayout::new(fields.collect()).unwrap()
    }

    #[test]
    fn each_line_is_a_value_and_an_unfinished_line_is_left_over() {
        let long = "x".repeat(100);
        let text = format!("one\n\n{long}\nrest");
        let (records, rest) = all(&layout(&[(FieldRole::Value, "\n")]), text.as_bytes());
        let values: Vec<_> = records.iter().map(|record| record.value.unwrap()).collect();
        assert_eq!(values, [b"one".as_slice(), b"", long.as_bytes()]);
        assert!(records.iter().all(|record| record.key.is_none()));
        assert_eq!(rest, b"rest");
    }

    #[test]
    fn a_field_ends_at_the_first_occurrence_of_its_literal() {
        let layout =
            layout(&[(FieldRole::Key, "=>"), (FieldRole::Unused, "|"), (FieldRole::Value, "\n")]);
        let (records, rest) = all(&layout, b"a=b=>t|v=>|w\n=>|\nhalf=>t|");
        let first = RecordFields { key: Some(b"a=b"), value: Some(b"v=>|w") };
        assert_eq!(records, [first, RecordFields { key: Some(b""), value: Some(b"") }]);
        assert_eq!(rest, b"half=>t|");
    }

    #[test]
    fn an_end_is_found_at_every_position() {
        for length in 0..200 {
            let text = [vec![b'a'; length], b"\nb".to_vec()].concat();
            assert_eq!(find(&text, b'\n'), Some(length));
            assert_eq!(find(&text, b'c'), None);
        }
    }

    #[test]
    fn a_layout_without_fields_or_with_an_empty_literal_is_refused() {
        assert!(RecordLayout::new(Vec::new()).is_none());
        assert!(RecordLayout::new(vec![(FieldRole::Value, Vec::new())]).is_none());
    }
}
