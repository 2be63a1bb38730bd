//! The schema language: one text file per API holds its request and response at every version; a
//! file in `records/` holds the key or the value of a record that the broker writes for itself.
//!
//! ```text
//! # Appends record batches to partitions.            comment; the first one describes the API
//! api 0 Produce 0-13 flexible 9                      key, name, versions, flexible from (or none)
//!
//! request
//!   transactional_id  string              3+ ?       in v3 and later; may be null wherever it is
//!   acks              int16                          no versions: in all of the parent's
//!   topic_data        [TopicProduceData]             [T] an array; a struct's fields are indented
//!     name            string              0-12       in v0 to v12
//!     records         records             ?3+        in all versions, may be null from v3 on
//!     current_leader  LeaderIdAndEpoch    10+ tag 0  a tagged field
//!     max_bytes       int32               3+ = 1     has a default
//! response
//!   ...
//!
//! record OffsetCommitKey 0-1 flexible none           a record: its fields follow, no request
//!   group             string
//! ```
//!
//! A line is `name type [versions] [?versions] [tag N] [= default]`, two spaces of indentation a
//! level, columns aligned for the eye only. Fields stand in wire order, tagged ones last.
//! Versions: `3+`, `0-12`, or `5`, inside the parent's; also those of `?`.
//! Types: bool int8 int16 uint16 int32 int64 float64 string bytes records uuid, or a struct's name
//! (Kafka's own). Two structs of one name in one file must be equal, and become one Rust type.
//! Default: the literal (`[]`, `{}`: empty, though it could be null), or else null where null is
//! allowed, or else zero, false, empty. A tagged field that equals its default is not written; a
//! field that a version lacks decodes to it.
//!
//! Derived, never written down: classic or compact lengths (flexible versions are compact), tag
//! sections (flexible versions have one at the end of every struct).

use std::fmt;
use std::fs;
use std::path::Path;

/// Versions from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    pub first: i16,
    pub last: i16,
}

impl Versions {
    pub fn contains(self, version: i16) -> bool {
        (self.first..=self.last).contains(&version)
    }

    fn covers(self, inner: Self) -> bool {
        self.first <= inner.first && inner.last <= self.last && inner.first <= inner.last
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.first, self.last) {
            (first, last) if first == last => write!(f, "v{first}"),
            (first, last) => write!(f, "v{first}-{last}"),
        }
    }
}

/// One API: both its messages at all versions.
#[derive(Debug)]
pub struct Api {
    pub key: i16,
    /// Kafka's name, `ListOffsets`.
    pub name: String,
    /// The name in snake case, `list_offsets`: that of the Rust module.
    pub module: String,
    pub about: String,
    pub versions: Versions,
    /// The first flexible version.
    pub flexible: Option<i16>,
    pub request: Struct,
    pub response: Struct,
}

/// Whether a version is flexible, where `first` is the first that is.
pub fn is_flexible(first: Option<i16>, version: i16) -> bool {
    first.is_some_and(|first| version >= first)
}

/// A record's key or value at all versions; its bytes begin with the version, an int16.
#[derive(Debug)]
pub struct Record {
    /// The name in snake case: that of the Rust module.
    pub module: String,
    pub about: String,
    /// The first flexible version.
    pub flexible: Option<i16>,
    pub root: Struct,
}

/// A message, or a struct inside one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Struct {
    pub name: String,
    pub versions: Versions,
    pub fields: Vec<Field>,
}

/// One line of a schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub name: String,
    pub kind: Kind,
    pub array: bool,
    pub versions: Versions,
    pub nullable: Option<Versions>,
    pub tag: Option<u32>,
    pub default: Option<String>,
}

impl Field {
    pub fn nullable_in(&self, version: i16) -> bool {
        self.nullable.is_some_and(|nullable| nullable.contains(version))
    }
}

/// What a field, or each element of an array, is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Bool,
    Int8,
    Int16,
    Uint16,
    Int32,
    Int64,
    Float64,
    Uuid,
    String,
    Bytes,
    Records,
    Struct(Struct),
}

impl Kind {
    fn scalar(name: &str) -> Option<Self> {
        Some(match name {
            "bool" => Self::Bool,
            "int8" => Self::Int8,
            "int16" => Self::Int16,
            "uint16" => Self::Uint16,
            "int32" => Self::Int32,
            "int64" => Self::Int64,
            "float64" => Self::Float64,
            "uuid" => Self::Uuid,
            "string" => Self::String,
            "bytes" => Self::Bytes,
            "records" => Self::Records,
            _ => return None,
        })
    }

    /// The schema's word for it.
    pub fn word(&self) -> &str {
        match self {
            Self::Bool => "bool",
            Self::Int8 => "int8",
            Self::Int16 => "int16",
            Self::Uint16 => "uint16",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::Float64 => "float64",
            Self::Uuid => "uuid",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Records => "records",
            Self::Struct(inner) => &inner.name,
        }
    }
}

/// Reads and checks every `*.txt` in `dir`, sorted by API key.
pub fn load(dir: &Path) -> Result<Vec<Api>, String> {
    let mut apis = each_file(dir, parse)?;
    apis.sort_by_key(|api| api.key);
    match apis.iter().zip(apis.iter().skip(1)).find(|(a, b)| a.key == b.key) {
        Some((a, b)) => Err(format!("{} and {} have the same key", a.name, b.name)),
        None => Ok(apis),
    }
}

/// Reads and checks every `*.txt` in `dir/records`, sorted by name.
pub fn load_records(dir: &Path) -> Result<Vec<Record>, String> {
    let mut records = each_file(&dir.join("records"), parse_record)?;
    records.sort_by(|a, b| a.module.cmp(&b.module));
    Ok(records)
}

fn each_file<T>(dir: &Path, parse: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    let entries = fs::read_dir(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    let mut all = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| error.to_string())?.path();
        if path.extension().is_none_or(|extension| extension != "txt") {
            continue;
        }
        let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        all.push(parse(&text).map_err(|error| format!("{}:{error}", path.display()))?);
    }
    Ok(all)
}

/// A line that says something: its number, its depth (0 at the margin), its words.
struct Line<'a> {
    number: usize,
    depth: usize,
    words: Vec<&'a str>,
}

impl Line<'_> {
    fn wrong(&self, what: impl fmt::Display) -> String {
        format!("{}: {what}", self.number)
    }
}

/// Parses the file of an API.
pub fn parse(text: &str) -> Result<Api, String> {
    let lines = lines(text)?;
    let mut rest = lines.as_slice();
    let mut api = header(&mut rest)?;
    api.about = about(text);
    api.request = message(&mut rest, &api, "request")?;
    api.response = message(&mut rest, &api, "response")?;
    check_tags(api.flexible, &api.request)?;
    check_tags(api.flexible, &api.response)?;
    match rest.first() {
        Some(line) => Err(line.wrong("more than a request and a response")),
        None => Ok(api),
    }
}

/// Parses the file of a record's key or value.
pub fn parse_record(text: &str) -> Result<Record, String> {
    let lines = lines(text)?;
    let mut rest = lines.as_slice();
    let line = next(&mut rest).ok_or("1: empty")?;
    let &["record", name, range, "flexible", flexible] = line.words.as_slice() else {
        return Err(line.wrong("expected `record NAME FIRST-LAST flexible FIRST|none`"));
    };
    let (versions, flexible) = (range_of(line, range)?, flexible_from(line, flexible)?);
    let fields = fields(&mut rest, 1, versions)?;
    if let Some(line) = rest.first() {
        return Err(line.wrong("more than the record's fields"));
    }
    let root = Struct { name: name.to_owned(), versions, fields };
    check_tags(flexible, &root)?;
    Ok(Record { module: snake_case(name), about: about(text), flexible, root })
}

fn about(text: &str) -> String {
    text.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or_default().to_owned()
}

fn lines(text: &str) -> Result<Vec<Line<'_>>, String> {
    let mut lines = Vec::new();
    for (index, text) in text.lines().enumerate() {
        let words: Vec<&str> = text.split_whitespace().collect();
        let indent = text.len() - text.trim_start_matches(' ').len();
        if words.first().is_none_or(|word| word.starts_with('#')) {
            continue;
        }
        if indent % 2 != 0 {
            return Err(format!("{}: odd indentation", index + 1));
        }
        lines.push(Line { number: index + 1, depth: indent / 2, words });
    }
    Ok(lines)
}

fn next<'a, 'b>(rest: &mut &'a [Line<'b>]) -> Option<&'a Line<'b>> {
    let (line, after) = rest.split_first()?;
    *rest = after;
    Some(line)
}

fn header(rest: &mut &[Line<'_>]) -> Result<Api, String> {
    let line = next(rest).ok_or("1: empty")?;
    let &["api", key, name, range, "flexible", flexible] = line.words.as_slice() else {
        return Err(line.wrong("expected `api KEY NAME FIRST-LAST flexible FIRST|none`"));
    };
    let (versions, flexible) = (range_of(line, range)?, flexible_from(line, flexible)?);
    let key = key.parse().map_err(|_| line.wrong("not a number"))?;
    let none = Struct { name: String::new(), versions, fields: Vec::new() };
    Ok(Api {
        key,
        name: name.to_owned(),
        module: snake_case(name),
        about: String::new(),
        versions,
        flexible,
        request: none.clone(),
        response: none,
    })
}

fn range_of(line: &Line<'_>, text: &str) -> Result<Versions, String> {
    let (first, last) = text.split_once('-').ok_or_else(|| line.wrong("expected FIRST-LAST"))?;
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) => Ok(Versions { first, last }),
        _ => Err(line.wrong("not a number")),
    }
}

fn flexible_from(line: &Line<'_>, text: &str) -> Result<Option<i16>, String> {
    match text {
        "none" => Ok(None),
        first => first.parse().map(Some).map_err(|_| line.wrong("flexible: not a number")),
    }
}

fn message(rest: &mut &[Line<'_>], api: &Api, word: &str) -> Result<Struct, String> {
    let line = next(rest).ok_or_else(|| format!("0: no {word}"))?;
    if line.depth != 0 || line.words != [word] {
        return Err(line.wrong(format!("expected `{word}`")));
    }
    let suffix = if word == "request" { "Request" } else { "Response" };
    let fields = fields(rest, 1, api.versions)?;
    Ok(Struct { name: format!("{}{suffix}", api.name), versions: api.versions, fields })
}

fn fields(rest: &mut &[Line<'_>], depth: usize, parent: Versions) -> Result<Vec<Field>, String> {
    let mut fields: Vec<Field> = Vec::new();
    while rest.first().is_some_and(|line| line.depth >= depth) {
        let Some(line) = next(rest) else { break };
        if line.depth > depth {
            return Err(line.wrong("indented below a field that is no struct"));
        }
        let field = field(line, rest, parent)?;
        if fields.iter().any(|other| other.name == field.name) {
            return Err(line.wrong("a second field of this name"));
        }
        let tag_order = fields.last().is_some_and(|last| field.tag.is_none() && last.tag.is_some());
        if tag_order {
            return Err(line.wrong("a plain field after a tagged one"));
        }
        fields.push(field);
    }
    Ok(fields)
}

/// Tags are unique in their struct, and stand only in flexible versions.
fn check_tags(flexible: Option<i16>, one: &Struct) -> Result<(), String> {
    let mut seen = Vec::new();
    for field in &one.fields {
        if let Some(tag) = field.tag {
            if !is_flexible(flexible, field.versions.first) || seen.contains(&tag) {
                let (name, versions) = (&field.name, field.versions);
                return Err(format!(
                    "0: tag {tag} of {name} is taken or not flexible in {versions}"
                ));
            }
            seen.push(tag);
        }
        if let Kind::Struct(inner) = &field.kind {
            check_tags(flexible, inner)?;
        }
    }
    Ok(())
}

fn field(line: &Line<'_>, rest: &mut &[Line<'_>], parent: Versions) -> Result<Field, String> {
    let [name, kind, words @ ..] = line.words.as_slice() else {
        return Err(line.wrong("expected `name type`"));
    };
    let (array, kind) = match kind.strip_prefix('[').and_then(|kind| kind.strip_suffix(']')) {
        Some(element) => (true, element),
        None => (false, *kind),
    };
    let marks = marks(line, words, parent)?;
    let kind = match Kind::scalar(kind) {
        Some(scalar) => scalar,
        None if kind.starts_with(|first: char| first.is_ascii_uppercase()) => {
            let fields = fields(rest, line.depth + 1, marks.versions)?;
            if fields.is_empty() {
                return Err(line.wrong("a struct without fields"));
            }
            Kind::Struct(Struct { name: kind.to_owned(), versions: marks.versions, fields })
        }
        None => return Err(line.wrong(format!("unknown type {kind}"))),
    };
    let may_be_null =
        array || matches!(kind, Kind::String | Kind::Bytes | Kind::Records | Kind::Struct(_));
    if marks.nullable.is_some() && !may_be_null {
        return Err(line.wrong("this type cannot be null"));
    }
    Ok(Field {
        name: (*name).to_owned(),
        kind,
        array,
        versions: marks.versions,
        nullable: marks.nullable,
        tag: marks.tag,
        default: marks.default,
    })
}

/// What follows name and type.
struct Marks {
    versions: Versions,
    nullable: Option<Versions>,
    tag: Option<u32>,
    default: Option<String>,
}

fn marks(line: &Line<'_>, mut words: &[&str], parent: Versions) -> Result<Marks, String> {
    let mut marks = Marks { versions: parent, nullable: None, tag: None, default: None };
    while let Some((word, after)) = words.split_first() {
        words = after;
        match *word {
            "tag" | "=" => {
                let (value, after) =
                    words.split_first().ok_or_else(|| line.wrong("a word is missing"))?;
                words = after;
                if *word == "=" {
                    marks.default = Some((*value).to_owned());
                } else {
                    let tag = value.parse().map_err(|_| line.wrong("tag: not a number"))?;
                    marks.tag = Some(tag);
                }
            }
            "?" => marks.nullable = Some(marks.versions),
            range => match range.strip_prefix('?') {
                Some(range) => marks.nullable = Some(versions(line, range, marks.versions)?),
                None => marks.versions = versions(line, range, parent)?,
            },
        }
    }
    Ok(marks)
}

fn versions(line: &Line<'_>, text: &str, parent: Versions) -> Result<Versions, String> {
    let (first, last) = match (text.strip_suffix('+'), text.split_once('-')) {
        (Some(first), _) => (first.parse(), Ok(parent.last)),
        (None, Some((first, last))) => (first.parse(), last.parse()),
        (None, None) => (text.parse(), text.parse()),
    };
    match (first, last) {
        (Ok(first), Ok(last)) if parent.covers(Versions { first, last }) => {
            Ok(Versions { first, last })
        }
        _ => Err(line.wrong(format!("`{text}` are no versions inside {parent}"))),
    }
}

fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}
