//! Turns parsed schemas into Rust: a module per API with its structs, one per record's key or
//! value, and the table of all APIs.
//!
//! Every struct gets `Default`, the `Coded` and `Element` traits (`Nullable` where a schema says
//! so), both `Value` traits, and inherent `decode`, `encode`, `size`, `skip` that take a version;
//! `skip` adds up what the message costs as a `Value`.
//! What a type of field looks like in bytes is not decided here but in `protocol/codec.rs`; this
//! file decides which fields a version has, in which order, and under which tag.

use crate::schema::{Api, Field, Kind, Record, Struct, Versions, is_flexible};
use std::fmt::{Error, Write};

/// The Rust text of everything.
pub fn protocol(apis: &[Api], records: &[Record]) -> Result<String, Box<dyn std::error::Error>> {
    let mut out = String::new();
    for api in apis {
        writeln!(out, "/// {} ({}): {}", api.name, api.key, api.about)?;
        writeln!(out, "pub mod {} {{", api.module)?;
        writeln!(out, "use super::generated::*;")?;
        emit_api(&mut out, api)?;
        let roots = [&api.request, &api.response];
        Scope { name: &api.name, flexible: api.flexible, roots: &roots }.structs(&mut out)?;
        writeln!(out, "}}\n")?;
    }
    for record in records {
        let Record { module, about, flexible, root } = record;
        writeln!(out, "/// {}: {about}", root.name)?;
        writeln!(out, "pub mod {module} {{")?;
        writeln!(out, "use super::generated::*;")?;
        form(&mut out, *flexible)?;
        Scope { name: &root.name, flexible: *flexible, roots: &[root] }.structs(&mut out)?;
        let Versions { first, last } = root.versions;
        let generics = lifetime(root);
        writeln!(out, "record_methods!({}{generics}, {first}, {last});", root.name)?;
        writeln!(out, "/// The record, known by its module alone.")?;
        writeln!(out, "pub static CODEC: AnyCodec = any_codec!({});", root.name)?;
        writeln!(out, "}}\n")?;
    }
    table(&mut out, apis)?;
    Ok(out)
}

/// What all structs of one module share.
struct Scope<'s> {
    name: &'s str,
    flexible: Option<i16>,
    /// The messages: request and response, or the record alone.
    roots: &'s [&'s Struct],
}

impl Scope<'_> {
    fn structs(&self, out: &mut String) -> Result<(), Box<dyn std::error::Error>> {
        let mut structs = Vec::new();
        for root in self.roots {
            collect(root, &mut structs)?;
        }
        for one in structs {
            Emitter { out, scope: self, one }.all()?;
        }
        Ok(())
    }
}

/// Lists a message's structs, each name once.
fn collect<'s>(one: &'s Struct, structs: &mut Vec<&'s Struct>) -> Result<(), String> {
    match structs.iter().find(|other| other.name == one.name) {
        Some(other) if *other == one => return Ok(()),
        Some(_) => return Err(format!("two different structs are called {}", one.name)),
        None => structs.push(one),
    }
    one.fields.iter().filter_map(inner).try_for_each(|inner| collect(inner, structs))
}

fn inner(field: &Field) -> Option<&Struct> {
    match &field.kind {
        Kind::Struct(inner) => Some(inner),
        _ => None,
    }
}

fn emit_api(out: &mut String, api: &Api) -> Result<(), Error> {
    let Versions { first, last } = api.versions;
    let (name, request, response) = (&api.name, &api.request.name, &api.response.name);
    let flexible = api.flexible.unwrap_or(i16::MAX);
    writeln!(out, "/// The key of {name} in request headers.")?;
    writeln!(out, "pub const KEY: i16 = {};", api.key)?;
    writeln!(out, "/// Key, versions and codecs of {name}.")?;
    writeln!(out, "pub static SCHEMA: ApiSchema = ApiSchema {{ key: KEY, name: \"{name}\",")?;
    writeln!(out, "first: {first}, last: {last}, flexible: {flexible},")?;
    let throttle = throttle(&api.response);
    writeln!(out, "throttle: {throttle:?},")?;
    writeln!(out, "request: any_codec!({request}), response: any_codec!({response}) }};")?;
    form(out, api.flexible)
}

/// The first version with a throttle time, and how many bytes of the response lie before it; `None`
/// where there is none, or that is no constant.
fn throttle(response: &Struct) -> Option<(i16, usize)> {
    let mut before = 0;
    for field in response.fields.iter().filter(|field| field.tag.is_none()) {
        if field.name == "throttle_time_ms" {
            return Some((field.versions.first, before));
        }
        before += match field.kind {
            _ if field.array || field.versions != response.versions => return None,
            Kind::Int16 => 2,
            Kind::Int64 => 8,
            _ => return None,
        };
    }
    None
}

fn form(out: &mut String, flexible: Option<i16>) -> Result<(), Error> {
    let test = match flexible {
        Some(first) => format!("flexible: version >= {first}"),
        None => "flexible: false".to_owned(),
    };
    writeln!(out, "fn form(version: i16) -> Form {{\nForm {{ version, {test} }}\n}}")
}

fn table(out: &mut String, apis: &[Api]) -> Result<(), Error> {
    writeln!(out, "/// Every API krust has a schema of, by key.")?;
    writeln!(out, "pub static APIS: &[&ApiSchema] = &[")?;
    for api in apis {
        writeln!(out, "&{}::SCHEMA,", api.module)?;
    }
    writeln!(out, "];\n")?;
    writeln!(out, "/// The schema of the API `key`, if krust has it.")?;
    writeln!(out, "pub fn api(key: i16) -> Option<&'static ApiSchema> {{")?;
    writeln!(out, "match key {{")?;
    for api in apis {
        writeln!(out, "{} => Some(&{}::SCHEMA),", api.key, api.module)?;
    }
    writeln!(out, "_ => None,\n}}\n}}")
}

/// Writes all that one struct needs.
struct Emitter<'e> {
    out: &'e mut String,
    scope: &'e Scope<'e>,
    one: &'e Struct,
}

impl Emitter<'_> {
    fn all(mut self) -> Result<(), Error> {
        self.definition()?;
        self.default()?;
        self.inherent()?;
        self.coded()?;
        self.element()?;
        if self.scope.roots.iter().any(|root| is_nullable(root, &self.one.name)) {
            let this = self.this();
            writeln!(self.out, "nullable_struct!({this});")?;
        }
        self.values()
    }

    fn this(&self) -> String {
        format!("{}{}", self.one.name, lifetime(self.one))
    }

    /// `impl<'a> Trait<'a> for This<'a> {`
    fn open_impl(&mut self, of: &str) -> Result<(), Error> {
        let this = self.this();
        writeln!(self.out, "impl<'a> {of}<'a> for {this} {{")
    }

    fn definition(&mut self) -> Result<(), Error> {
        match self.scope.roots.iter().position(|root| root.name == self.one.name) {
            Some(0) if self.scope.roots.len() == 1 => writeln!(self.out, "\n/// The record.")?,
            Some(0) => writeln!(self.out, "\n/// The request.")?,
            Some(_) => writeln!(self.out, "\n/// The response.")?,
            None => {
                let (name, versions) = (self.scope.name, self.one.versions);
                writeln!(self.out, "\n/// A part of {name}, {versions}.")?;
            }
        }
        writeln!(self.out, "#[derive(Clone, Debug, PartialEq)]")?;
        writeln!(self.out, "pub struct {} {{", self.this())?;
        for field in &self.one.fields {
            write!(self.out, "/// `{}`, {}", field.kind.word(), field.versions)?;
            if let Some(nullable) = field.nullable {
                write!(self.out, ", may be null in {nullable}")?;
            }
            if let Some(tag) = field.tag {
                write!(self.out, ", tag {tag}")?;
            }
            writeln!(self.out, ".\npub {}: {},", ident(field), rust_type(field))?;
        }
        writeln!(self.out, "}}")
    }

    fn default(&mut self) -> Result<(), Error> {
        let this = self.this();
        let generics = lifetime(self.one);
        writeln!(
            self.out,
            "impl{generics} Default for {this} {{\nfn default() -> Self {{\nSelf {{"
        )?;
        for field in &self.one.fields {
            writeln!(self.out, "{}: {},", ident(field), default(field))?;
        }
        writeln!(self.out, "}}\n}}\n}}")
    }

    fn inherent(&mut self) -> Result<(), Error> {
        match lifetime(self.one) {
            "" => writeln!(self.out, "message_methods!({}, '_);", self.this()),
            _ => writeln!(self.out, "message_methods!({}, 'a, 'a);", self.this()),
        }
    }

    fn coded(&mut self) -> Result<(), Error> {
        self.open_impl("Coded")?;
        self.get()?;
        self.put()?;
        self.skip()?;
        writeln!(self.out, "}}")
    }

    /// Whether any version has tagged fields, known or not.
    fn has_tags(&self) -> bool {
        self.scope.flexible.is_some_and(|flexible| flexible <= self.one.versions.last)
    }

    fn plain(&self) -> impl Iterator<Item = &'_ Field> {
        self.one.fields.iter().filter(|field| field.tag.is_none())
    }

    fn tagged(&self) -> Vec<&'_ Field> {
        let mut fields: Vec<_> = self.one.fields.iter().filter(|f| f.tag.is_some()).collect();
        fields.sort_by_key(|field| field.tag);
        fields
    }

    fn get(&mut self) -> Result<(), Error> {
        let mut text = String::new();
        for field in self.plain() {
            let read = read(field);
            match within(field.versions, self.one.versions) {
                Some(test) => writeln!(
                    text,
                    "let {} = if {test} {{ {read} }} else {{ {} }};",
                    ident(field),
                    default(field)
                )?,
                None => writeln!(text, "let {} = {read};", ident(field))?,
            }
        }
        let tagged = self.tagged();
        for field in &tagged {
            writeln!(text, "let mut {} = {};", ident(field), default(field))?;
        }
        if self.has_tags() && tagged.is_empty() {
            writeln!(text, "if form.flexible {{ r.skip_tagged()?; }}")?;
        } else if self.has_tags() {
            writeln!(text, "if form.flexible {{ r.tagged(|tag, r| {{\nmatch tag {{")?;
            for field in &tagged {
                let test = within(field.versions, self.one.versions);
                let guard = test.map(|test| format!("if {test} ")).unwrap_or_default();
                let tag = field.tag.unwrap_or_default();
                let read = match is_optional(field) {
                    true => "get_optional(r, form)?".to_owned(),
                    false => read(field),
                };
                writeln!(text, "{tag} {guard}=> {} = {read},", ident(field))?;
            }
            writeln!(text, "_ => return Ok(false),\n}}\nOk(true)\n}})?; }}")?;
        }
        writeln!(
            self.out,
            "fn get(r: &mut Reader<'a>, form: Form) -> Result<Self, DecodeError> {{"
        )?;
        write!(self.out, "{text}Ok(Self {{ ")?;
        for field in &self.one.fields {
            write!(self.out, "{}, ", ident(field))?;
        }
        writeln!(self.out, "}})\n}}")
    }

    fn put(&mut self) -> Result<(), Error> {
        let mut text = String::new();
        for field in self.plain() {
            let put = write_field(field);
            match within(field.versions, self.one.versions) {
                Some(test) => writeln!(text, "if {test} {{ {put} }}")?,
                None => writeln!(text, "{put}")?,
            }
        }
        let tagged = self.tagged();
        if self.has_tags() {
            writeln!(text, "if form.flexible {{")?;
            for field in &tagged {
                let set = is_set(field);
                let test = match within(field.versions, self.one.versions) {
                    Some(test) => format!("{test} && {set}"),
                    None => set,
                };
                writeln!(text, "let has_{} = {test};", field.name)?;
            }
            let count: Vec<_> =
                tagged.iter().map(|field| format!("u32::from(has_{})", field.name)).collect();
            let count = if count.is_empty() { "0".to_owned() } else { count.join(" + ") };
            writeln!(text, "s.unsigned_varint({count});")?;
            for field in &tagged {
                let (name, tag) = (&field.name, field.tag.unwrap_or_default());
                let (put, ident) = match is_optional(field) {
                    true => ("put_optional", ident(field)),
                    false => ("put_tagged", ident(field)),
                };
                writeln!(text, "if has_{name} {{ {put}(s, {tag}, (&self.{ident}, form)); }}")?;
            }
            writeln!(text, "}}")?;
        }
        writeln!(self.out, "fn put<S: Sink>(&self, s: &mut S, form: Form) {{\n{text}}}")
    }

    fn skip(&mut self) -> Result<(), Error> {
        let mut text = String::new();
        let count = self.one.fields.len();
        let tagged = !self.tagged().is_empty();
        writeln!(text, "let mut sum = cost::map({count});")?;
        for field in self.plain() {
            let skip = format!("sum += <{} as Coded>::skip(r, form)?;", rust_type(field));
            match within(field.versions, self.one.versions) {
                Some(test) => writeln!(text, "if {test} {{ {skip} }}")?,
                None => writeln!(text, "{skip}")?,
            }
        }
        if self.has_tags() && tagged {
            writeln!(text, "let before = r.remaining();")?;
            writeln!(text, "if form.flexible {{ r.skip_tagged()?; }}")?;
            writeln!(text, "sum += cost::tagged(before - r.remaining());")?;
        } else if self.has_tags() {
            writeln!(text, "if form.flexible {{ r.skip_tagged()?; }}")?;
        }
        writeln!(
            self.out,
            "fn skip(r: &mut Reader<'a>, form: Form) -> Result<usize, DecodeError> {{"
        )?;
        writeln!(self.out, "{text}Ok(sum)\n}}")
    }

    fn element(&mut self) -> Result<(), Error> {
        self.open_impl("Element")?;
        writeln!(self.out, "fn min_size(form: Form) -> usize {{\nmatch form.version {{")?;
        let Versions { first, last } = self.one.versions;
        let size = |version: &i16| min_size(self.scope.flexible, self.one, *version);
        let mut start = first;
        let mut arms = String::new();
        for version in first..last {
            if size(&version) != size(&(version + 1)) {
                writeln!(arms, "{start}..={version} => {},", size(&start))?;
                start = version + 1;
            }
        }
        writeln!(arms, "_ => {},", size(&start))?;
        writeln!(self.out, "{arms}}}\n}}\n}}")
    }

    fn values(&mut self) -> Result<(), Error> {
        let this = self.this();
        let generics = lifetime(self.one);
        writeln!(self.out, "impl{generics} ToValue for {this} {{")?;
        writeln!(self.out, "fn to_value(&self, version: i16) -> Value {{")?;
        writeln!(self.out, "let mut map = Vec::with_capacity({});", self.one.fields.len())?;
        for field in &self.one.fields {
            let name = &field.name;
            let value = format!("self.{}.to_value(version)", ident(field));
            let push = format!("push_field(&mut map, \"{name}\", {value});");
            match within(field.versions, self.one.versions) {
                Some(test) => writeln!(
                    self.out,
                    "if {} {{ {push} }}",
                    test.replace("form.version", "version")
                )?,
                None => writeln!(self.out, "{push}")?,
            }
        }
        writeln!(self.out, "Value::Map(map)\n}}\n}}")?;
        self.open_impl("FromValue")?;
        writeln!(self.out, "fn from_value(value: &'a Value) -> Result<Self, ValueError> {{")?;
        writeln!(self.out, "let mut out = Self::default();")?;
        writeln!(self.out, "value.each_field(|key, value| {{\nmatch key {{")?;
        for field in &self.one.fields {
            let name = &field.name;
            let ident = ident(field);
            writeln!(self.out, "\"{name}\" => out.{ident} = FromValue::from_value(value)?,")?;
        }
        writeln!(self.out, "_ => return Ok(false),\n}}\nOk(true)\n}})?;\nOk(out)\n}}\n}}")
    }
}

/// Whether any field is a nullable struct of this name.
fn is_nullable(outer: &Struct, name: &str) -> bool {
    outer.fields.iter().any(|field| {
        inner(field).is_some_and(|inner| {
            (inner.name == name && field.nullable.is_some() && !field.array)
                || is_nullable(inner, name)
        })
    })
}

fn lifetime(one: &Struct) -> &'static str {
    let borrows = |field: &Field| match &field.kind {
        Kind::String | Kind::Bytes | Kind::Records => true,
        Kind::Struct(inner) => !lifetime(inner).is_empty(),
        _ => false,
    };
    if one.fields.iter().any(borrows) { "<'a>" } else { "" }
}

fn rust_type(field: &Field) -> String {
    let element = match &field.kind {
        Kind::Bool => "bool".to_owned(),
        Kind::Int8 => "i8".to_owned(),
        Kind::Int16 => "i16".to_owned(),
        Kind::Uint16 => "u16".to_owned(),
        Kind::Int32 => "i32".to_owned(),
        Kind::Int64 => "i64".to_owned(),
        Kind::Float64 => "f64".to_owned(),
        Kind::Uuid => "TopicId".to_owned(),
        Kind::String => "&'a str".to_owned(),
        Kind::Bytes => "&'a [u8]".to_owned(),
        Kind::Records => return "RecordsField<'a>".to_owned(),
        Kind::Struct(inner) => format!("{}{}", inner.name, lifetime(inner)),
    };
    let value = if field.array { format!("Vec<{element}>") } else { element };
    if field.nullable.is_some() { format!("Option<{value}>") } else { value }
}

/// The expression of a field's default.
fn default(field: &Field) -> String {
    let literal = field.default.as_deref();
    match (&field.kind, literal) {
        (Kind::Records, _) => "RecordsField::Null".to_owned(),
        (_, None) if field.nullable.is_some() => "None".to_owned(),
        _ if field.array && field.nullable.is_some() => "Some(Vec::new())".to_owned(),
        (Kind::Struct(inner), _) if is_optional(field) => {
            format!("Some({}::default())", inner.name)
        }
        _ if field.array => "Vec::new()".to_owned(),
        (Kind::Bool, literal) => literal.unwrap_or("false").to_owned(),
        (Kind::String, literal) => format!("{:?}", literal.unwrap_or_default()),
        (Kind::Bytes, _) => "&[]".to_owned(),
        (Kind::Uuid, _) => "TopicId::ZERO".to_owned(),
        (Kind::Float64, literal) => format!("{}_f64", literal.unwrap_or("0")),
        (Kind::Struct(inner), _) => format!("{}::default()", inner.name),
        (_, literal) => literal.unwrap_or("0").to_owned(),
    }
}

/// Whether a field is a tagged struct that may be null: its marker is one of its own.
fn is_optional(field: &Field) -> bool {
    let is_struct = matches!(field.kind, Kind::Struct(_)) && !field.array;
    is_struct && field.tag.is_some() && field.nullable.is_some()
}

/// A field's name in Rust.
fn ident(field: &Field) -> String {
    let is_word = ["match", "type"].contains(&field.name.as_str()); // Rust's among Kafka's names
    if is_word { format!("r#{}", field.name) } else { field.name.clone() }
}

/// The test whether a tagged field differs from its default, and so has to be written.
fn is_set(field: &Field) -> String {
    let name = format!("self.{}", ident(field));
    match (&field.kind, default(field).as_str()) {
        (_, "None") => format!("{name}.is_some()"),
        (_, "Some(Vec::new())") => format!("!{name}.as_ref().is_some_and(Vec::is_empty)"),
        (_, "Vec::new()" | "\"\"" | "&[]") => format!("!{name}.is_empty()"),
        (Kind::Bool, "false") => name,
        (Kind::Bool, _) => format!("!{name}"),
        (_, default) => format!("{name} != {default}"),
    }
}

/// The expression that reads a field.
fn read(field: &Field) -> String {
    let test = field.nullable.and_then(|nullable| within(nullable, field.versions));
    let required = match field.kind {
        Kind::Records => "RecordsField::get_required(r, form)?",
        _ => "Some(Coded::get(r, form)?)",
    };
    match (field.nullable, test) {
        (None, _) if field.kind == Kind::Records => required.to_owned(),
        (Some(_), Some(test)) => {
            format!("if {test} {{ Coded::get(r, form)? }} else {{ {required} }}")
        }
        _ => "Coded::get(r, form)?".to_owned(),
    }
}

/// The statement that writes a field.
fn write_field(field: &Field) -> String {
    let name = ident(field);
    let test = field.nullable.and_then(|nullable| within(nullable, field.versions));
    let required = match field.kind {
        Kind::Records => format!("self.{name}.put_required(s, form);"),
        _ => format!("put_required(&self.{name}, s, form);"),
    };
    match (field.nullable, test) {
        (None, _) if field.kind == Kind::Records => required,
        (Some(_), Some(test)) => {
            format!("if {test} {{ self.{name}.put(s, form); }} else {{ {required} }}")
        }
        _ => format!("self.{name}.put(s, form);"),
    }
}

/// The test for `versions` where `outer` is known to hold; `None` where it follows.
fn within(versions: Versions, outer: Versions) -> Option<String> {
    let Versions { first, last } = versions;
    match (first <= outer.first, last >= outer.last) {
        (true, true) => None,
        (false, true) => Some(format!("form.version >= {first}")),
        (true, false) => Some(format!("form.version <= {last}")),
        (false, false) => Some(format!("({first}..={last}).contains(&form.version)")),
    }
}

/// The fewest bytes a struct takes at a version.
fn min_size(flexible: Option<i16>, one: &Struct, version: i16) -> usize {
    let compact = is_flexible(flexible, version);
    let sizes = one.fields.iter().filter(|f| f.tag.is_none() && f.versions.contains(version));
    let fields: usize = sizes
        .map(|field| match (&field.kind, compact) {
            (_, true) if field.array => 1,
            (_, false) if field.array => 4,
            (Kind::Bool | Kind::Int8, _) => 1,
            (Kind::Int16 | Kind::Uint16, _) => 2,
            (Kind::Int32, _) => 4,
            (Kind::Int64 | Kind::Float64, _) => 8,
            (Kind::Uuid, _) => 16,
            (Kind::String | Kind::Bytes | Kind::Records, true) => 1,
            (Kind::String, false) => 2,
            (Kind::Bytes | Kind::Records, false) => 4,
            (Kind::Struct(_), _) if field.nullable_in(version) => 1,
            (Kind::Struct(inner), _) => min_size(flexible, inner, version),
        })
        .sum();
    fields + usize::from(compact)
}
