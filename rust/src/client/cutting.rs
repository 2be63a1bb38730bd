//! Cuts a block of bytes into records, by the literals that end their fields (`key TAB value LF`).
//!
//! A field ends where its literal stands first; a record ends with its last literal, so a block's
//! rest, which has no end yet, is left to the next block. Pure: borrows all it gives.
//! Not promised: formats that begin with a literal or end with a field; those are their caller's.

/// What a field of the text is to the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The record's key.
    Key,
    /// The record's value.
    Value,
    /// Nothing: it is passed over.
    Unused,
}

/// The fields of a record in their order, each with the literal that ends it.
#[derive(Clone, Debug)]
pub struct Layout {
    fields: Vec<(Role, Vec<u8>)>,
}

/// One record's place in the block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut<'a> {
    /// `None`: the layout has no key.
    pub key: Option<&'a [u8]>,
    /// `None`: the layout has no value.
    pub value: Option<&'a [u8]>,
}

impl Layout {
    /// `None` where there is no field, or a literal is empty.
    pub fn new(fields: Vec<(Role, Vec<u8>)>) -> Option<Self> {
        let ends = fields.iter().all(|(_, literal)| !literal.is_empty());
        (ends && !fields.is_empty()).then_some(Self { fields })
    }

    /// The record at the start of `block` and what follows it; `None` where it has no end.
    pub fn cut<'a>(&self, block: &'a [u8]) -> Option<(Cut<'a>, &'a [u8])> {
        let (mut cut, mut rest) = (Cut::default(), block);
        for (role, literal) in &self.fields {
            let (field, after) = split_at_first(rest, literal)?;
            match role {
                Role::Key => cut.key = Some(field),
                Role::Value => cut.value = Some(field),
                Role::Unused => {}
            }
            rest = after;
        }
        Some((cut, rest))
    }
}

/// What stands before `literal` and after it.
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

/// Where `byte` stands first. Looks at 32 bytes at once, which compilers make vectors of.
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

    fn all<'a>(layout: &Layout, mut block: &'a [u8]) -> (Vec<Cut<'a>>, &'a [u8]) {
        let mut cuts = Vec::new();
        while let Some((cut, rest)) = layout.cut(block) {
            cuts.push(cut);
            block = rest;
        }
        (cuts, block)
    }

    fn layout(fields: &[(Role, &str)]) -> Layout {
        let fields = fields.iter().map(|(role, text)| (*role, text.as_bytes().to_vec()));
        Layout::new(fields.collect()).unwrap()
    }

    #[test]
    fn lines_are_values_and_the_last_without_an_end_is_left() {
        let long = "x".repeat(100);
        let text = format!("one\n\n{long}\nrest");
        let (cuts, rest) = all(&layout(&[(Role::Value, "\n")]), text.as_bytes());
        let values: Vec<_> = cuts.iter().map(|cut| cut.value.unwrap()).collect();
        assert_eq!(values, [b"one".as_slice(), b"", long.as_bytes()]);
        assert!(cuts.iter().all(|cut| cut.key.is_none()));
        assert_eq!(rest, b"rest");
    }

    #[test]
    fn a_field_ends_where_its_literal_stands_first() {
        let layout = layout(&[(Role::Key, "=>"), (Role::Unused, "|"), (Role::Value, "\n")]);
        let (cuts, rest) = all(&layout, b"a=b=>t|v=>|w\n=>|\nhalf=>t|");
        let first = Cut { key: Some(b"a=b"), value: Some(b"v=>|w") };
        assert_eq!(cuts, [first, Cut { key: Some(b""), value: Some(b"") }]);
        assert_eq!(rest, b"half=>t|");
    }

    #[test]
    fn every_place_of_an_end_is_found() {
        for length in 0..200 {
            let text = [vec![b'a'; length], b"\nb".to_vec()].concat();
            assert_eq!(find(&text, b'\n'), Some(length));
            assert_eq!(find(&text, b'c'), None);
        }
    }

    #[test]
    fn a_layout_has_fields_and_each_has_an_end() {
        assert!(Layout::new(Vec::new()).is_none());
        assert!(Layout::new(vec![(Role::Value, Vec::new())]).is_none());
    }
}
