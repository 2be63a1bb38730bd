//! The schema language: what a mistake in a file says, and what each mark means.

use super::schema::{Versions, parse, parse_record};

/// A file whose request has these lines.
fn file(request: &str) -> String {
    format!("# Text.\napi 7 Some 0-5 flexible 1\nrequest\n{request}response\n")
}

fn mistake(request: &str) -> String {
    parse(&file(request)).unwrap_err()
}

#[test]
fn field_attributes_give_versions_null_tag_and_default() {
    let text = "  list [Thing] 1+ ?2-4 tag 3\n    x int32 4 = -1\n";
    let api = parse(&file(text)).unwrap();
    assert_eq!((api.key, api.module.as_str(), api.about.as_str()), (7, "some", "Text."));
    let list = &api.request.fields[0];
    assert!(list.array);
    assert_eq!(list.versions, Versions { first: 1, last: 5 });
    assert_eq!(list.nullable, Some(Versions { first: 2, last: 4 }));
    assert_eq!(list.tag, Some(3));
    let super::schema::Kind::Struct(thing) = &list.kind else { panic!("{:?}", list.kind) };
    assert_eq!(thing.fields[0].versions, Versions { first: 4, last: 4 });
    assert_eq!(thing.fields[0].default.as_deref(), Some("-1"));
}

#[test]
fn a_syntax_error_names_its_line() {
    assert_eq!(mistake("  x int31\n"), "4: unknown type int31");
    assert_eq!(mistake("  x int32 ?\n"), "4: this type cannot be null");
    assert_eq!(mistake("  a int32\n   b int32\n"), "5: odd indentation");
    assert_eq!(mistake("  a int32\n    b int32\n"), "5: indented below a field that is no struct");
    assert_eq!(mistake("  a int32\n  a int32\n"), "5: a second field of this name");
    assert_eq!(mistake("  t Thing\n"), "4: a struct without fields");
    assert_eq!(mistake("  a int32 3-9\n"), "4: `3-9` are no versions inside v0-5");
    assert_eq!(mistake("  a int32 3+ tag 0\n  b int32\n"), "5: a plain field after a tagged one");
}

#[test]
fn a_tag_is_allowed_once_and_only_in_flexible_versions() {
    let wrong = "0: tag 0 of a is taken or not flexible in v0-5";
    assert_eq!(mistake("  a int32 tag 0\n"), wrong);
    let wrong = "0: tag 0 of b is taken or not flexible in v2-5";
    assert_eq!(mistake("  a int32 1+ tag 0\n  b int32 2+ tag 0\n"), wrong);
}

#[test]
fn a_record_is_one_struct_with_versions_of_its_own() {
    let record = parse_record("# Text.\nrecord SomeKey 2-3 flexible 3\n  group string\n").unwrap();
    assert_eq!((record.module.as_str(), record.about.as_str()), ("some_key", "Text."));
    assert_eq!((record.root.versions, record.flexible), (Versions { first: 2, last: 3 }, Some(3)));
    let mistake = parse_record("record SomeKey 2 flexible 3\n").unwrap_err();
    assert_eq!(mistake, "1: expected FIRST-LAST");
    let mistake = parse_record("record A 0-0 flexible none\nrequest\n").unwrap_err();
    assert_eq!(mistake, "2: more than the record's fields");
}
