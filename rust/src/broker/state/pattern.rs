//! Names by regular expression: topics, as members of consumer groups subscribe to them, and
//! transactional ids. The syntax is RE2's. A match covers the whole name, and its time is linear in
//! pattern and name.
//!
//! Limits: the length of a pattern, its compiled size, and its nesting depth.
//! Differences from RE2: `\Q...\E` is supported. A bracket inside brackets opens a class. A brace
//! that begins no repetition is an error. The last two do not matter for topic names. Internal
//! topics match too, as in Kafka 4.3: `.*` includes the offsets topic.
//! Threads: any; pure but for the image.

use regex::RegexBuilder;

use crate::broker::state::image::ClusterImage;

/// The longest pattern, in bytes: it is a string in a record's key.
const PATTERN_MAX: usize = 0x7fff;
/// The largest compiled size of a pattern, in bytes, and the largest memory of a match.
const COMPILED_MAX: usize = 1 << 20;
/// How deep groups may nest.
const NEST_MAX: u32 = 100;

impl ClusterImage {
    /// The names of the topics that match a pattern, sorted.
    /// Errors: what is wrong with the pattern, in words for people.
    pub fn match_topics(&self, pattern: &str) -> Result<Vec<String>, String> {
        let pattern = compile(pattern)?;
        let found = self.topics().filter(|topic| pattern.is_match(&topic.name));
        let mut found: Vec<String> = found.map(|topic| topic.name.to_string()).collect();
        found.sort_unstable();
        Ok(found)
    }
}

/// A pattern that matches whole names. Errors: what is wrong with it, in words for people.
pub(crate) fn compile(pattern: &str) -> Result<regex::Regex, String> {
    compile_both(&unquoted(pattern)).map(|(_, whole)| whole)
}

/// The same pattern for parts of a text, and for a whole text.
pub(crate) fn compile_both(pattern: &str) -> Result<(regex::Regex, regex::Regex), String> {
    if pattern.len() > PATTERN_MAX {
        return Err(format!("longer than {PATTERN_MAX} bytes"));
    }
    let build = |pattern: &str| {
        let mut builder = RegexBuilder::new(pattern);
        builder.size_limit(COMPILED_MAX).dfa_size_limit(COMPILED_MAX).nest_limit(NEST_MAX).build()
    };
    // The pattern is compiled alone first: `a)|(b` is no pattern, but it would be one between
    // brackets.
    build(pattern)
        .and_then(|part| Ok((part, build(&format!(r"\A(?:{pattern})\z"))?)))
        .map_err(|error| error.to_string())
}

/// The pattern without RE2's quotes: the text between `\Q` and `\E` is taken literally.
fn unquoted(pattern: &str) -> String {
    let (mut plain, mut rest) = (String::with_capacity(pattern.len()), pattern);
    while let Some((before, after)) = rest.split_once('\\') {
        plain.push_str(before);
        rest = match after.strip_prefix('Q') {
            Some(quoted) => {
                let (quoted, rest) = quoted.split_once(r"\E").unwrap_or((quoted, ""));
                plain.push_str(&regex::escape(quoted));
                rest
            }
            None => {
                let mut responses = after.chars();
                plain.push('\\');
                plain.extend(responses.next());
                responses.as_str()
            }
        };
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        compile(pattern).unwrap().is_match(name)
    }

    #[test]
    fn the_whole_name_has_to_match() {
        assert!(matches("a|ab", "ab") && matches("orders-.*", "orders-eu"));
        assert!(!matches("orders", "orders-eu") && !matches("eu", "orders-eu"));
        assert!(matches("(?i)ORDERS", "orders") && matches("^orders$", "orders"));
        assert!(matches("", "") && !matches("", "a"));
        assert!(matches(r"\Qa.b\E+", "a.b") && !matches(r"\Qa.b\E", "axb"));
        assert!(matches(r"a\.b", "a.b") && matches(r"\Qa.b", "a.b"));
    }

    #[test]
    fn what_is_no_pattern_or_too_much_of_one_is_refused() {
        for wrong in ["(", "a)|(b", "[a", "*", r"\", "(?<=a)b", r"(a)\1", "(?x)a #"] {
            assert!(compile(wrong).is_err(), "{wrong}");
        }
        assert!(compile("((((a{100}){100}){100}){100})").is_err());
        assert!(compile(&"(".repeat(5000)).is_err());
        assert!(compile(&"a".repeat(0x8000)).is_err());
        assert!(compile(&format!("{}a{}", "(".repeat(200), ")".repeat(200))).is_err());
    }
}
