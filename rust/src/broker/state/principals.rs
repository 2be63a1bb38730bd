//! [`PrincipalRules`]: `ssl.principal.mapping.rules` of a listener (KIP-371), which make a user's
//! name of a certificate's subject.
//!
//! The first rule whose pattern matches the whole subject gives the name. As in Kafka, that rule
//! then replaces every place where its pattern matches: `.*` matches once more, at the end.
//! Patterns are Java's (`java_pattern`). A match takes linear time.
//! In a replacement `$1` and `${name}` are groups and `\` takes the next character literally. A
//! group that a pattern with groups does not have is literal text, as in Kafka; if it has none at
//! all, Kafka fails each connection, and krust refuses the rule.
//! Threads: any; pure.

use regex::{Captures, Regex};

use crate::broker::state::{java_pattern, pattern};

/// How a name's letters are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LetterCase {
    /// Not at all.
    Kept,
    /// `/L`
    Lower,
    /// `/U`
    Upper,
}

/// The rules of a listener, in their order.
#[derive(Debug)]
pub struct PrincipalRules(Vec<Rule>);

#[derive(Debug)]
enum Rule {
    /// `DEFAULT`: the subject itself.
    Subject,
    /// `RULE:pattern/replacement/case`.
    Replace { whole: Regex, part: Regex, with: Vec<Piece>, case: LetterCase },
}

/// A piece of a replacement.
#[derive(Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Group(usize),
}

impl Default for PrincipalRules {
    /// `DEFAULT`
    fn default() -> Self {
        Self(vec![Rule::Subject])
    }
}

impl PrincipalRules {
    /// Rules without any.
    pub fn none() -> Self {
        Self(Vec::new())
    }

    /// Appends `DEFAULT`.
    pub fn push_default(&mut self) {
        self.0.push(Rule::Subject);
    }

    /// Appends a rule. Errors: what is wrong with it, in words for people.
    pub fn push(
        &mut self,
        pattern: &str,
        replacement: &str,
        case: LetterCase,
    ) -> Result<(), String> {
        let (part, whole) = pattern::compile_both(&java_pattern::translated(pattern)?)?;
        let with = pieces(replacement, &part)?;
        self.0.push(Rule::Replace { whole, part, with, case });
        Ok(())
    }

    /// The name that the rules give to a subject; `None`: no rule matches.
    pub fn name(&self, subject: &str) -> Option<String> {
        self.0.iter().find_map(|rule| rule.name(subject))
    }
}

impl Rule {
    fn name(&self, subject: &str) -> Option<String> {
        let Self::Replace { whole, part, with, case } = self else {
            return Some(subject.to_owned());
        };
        if !whole.is_match(subject) {
            return None;
        }
        let name = replaced(subject, part, with);
        Some(match case {
            LetterCase::Kept => name,
            LetterCase::Lower => name.to_lowercase(),
            LetterCase::Upper => name.to_uppercase(),
        })
    }
}

/// The text with every match replaced. Unlike `Regex::replace_all`, it counts an empty match at
/// the end of the one before.
fn replaced(text: &str, part: &Regex, with: &[Piece]) -> String {
    let mut made = String::with_capacity(text.len());
    let (mut kept, mut at) = (0, 0);
    while let Some(found) = part.captures_at(text, at) {
        let Some(whole) = found.get(0) else { break };
        made.push_str(text.get(kept..whole.start()).unwrap_or_default());
        with.iter().for_each(|piece| made.push_str(piece.text(&found)));
        kept = whole.end();
        at = match text.get(whole.end()..).and_then(|rest| rest.chars().next()) {
            _ if !whole.is_empty() => whole.end(),
            Some(next) => whole.end() + next.len_utf8(),
            None => break,
        };
    }
    made.push_str(text.get(kept..).unwrap_or_default());
    made
}

impl Piece {
    fn text<'t>(&'t self, found: &Captures<'t>) -> &'t str {
        match self {
            Self::Text(text) => text,
            Self::Group(number) => found.get(*number).map_or("", |group| group.as_str()),
        }
    }
}

/// The pieces of a replacement.
fn pieces(replacement: &str, pattern: &Regex) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut text = String::new();
    let mut rest = replacement.chars();
    while let Some(each) = rest.next() {
        let group = match each {
            '\\' => {
                let literal = rest.next().ok_or("its replacement ends with a backslash")?;
                text.push(literal);
                continue;
            }
            '$' => group(&mut rest, pattern)?,
            _ => None,
        };
        match group {
            None => text.push(each),
            Some(number) => {
                if !text.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut text)));
                }
                pieces.push(Piece::Group(number));
            }
        }
    }
    if !text.is_empty() {
        pieces.push(Piece::Text(text));
    }
    Ok(pieces)
}

/// The group after a dollar sign: as many digits as name one. `None`: the dollar sign is text.
fn group(rest: &mut std::str::Chars<'_>, pattern: &Regex) -> Result<Option<usize>, String> {
    if let Some(named) = rest.as_str().strip_prefix('{') {
        let (name, after) = named.split_once('}').ok_or("its replacement has ${ without }")?;
        let number = pattern.capture_names().position(|known| known == Some(name));
        *rest = after.chars();
        return number.map(Some).ok_or_else(|| format!("its pattern has no group named {name}"));
    }
    let text = rest.as_str();
    let digits = text.len() - text.trim_start_matches(|each: char| each.is_ascii_digit()).len();
    let is_known = |end: usize| {
        let number: usize = text.get(..end)?.parse().ok()?;
        (number < pattern.captures_len()).then_some((number, end))
    };
    match (1..=digits).map_while(is_known).last() {
        Some((number, end)) => {
            *rest = text.get(end..).unwrap_or_default().chars();
            Ok(Some(number))
        }
        None if digits > 0 && pattern.captures_len() > 1 => Ok(None),
        None => {
            Err("its replacement has a $ that names no group of the pattern: write \\$".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: &str = "CN=alice,OU=dev,O=krust,C=DE";

    fn rules(each: &[(&str, &str, LetterCase)]) -> Result<PrincipalRules, String> {
        let mut rules = PrincipalRules::none();
        each.iter().try_for_each(|(pattern, with, case)| rules.push(pattern, with, *case))?;
        Ok(rules)
    }

    fn named(pattern: &str, with: &str, subject: &str) -> Option<String> {
        rules(&[(pattern, with, LetterCase::Kept)]).unwrap().name(subject)
    }

    fn refused(pattern: &str, with: &str) -> String {
        rules(&[(pattern, with, LetterCase::Kept)]).unwrap_err()
    }

    #[test]
    fn the_first_rule_that_matches_the_whole_subject_gives_the_name() {
        use LetterCase::{Kept, Lower, Upper};
        let mut rules = rules(&[
            ("CN=(.*?), OU=.*", "$1", Kept),
            ("CN=(\\w+),OU=(\\w+),.*", "$1@$2", Upper),
            ("CN=(.*)", "$1", Lower),
        ])
        .unwrap();
        assert_eq!(rules.name(ALICE).as_deref(), Some("ALICE@DEV"));
        assert_eq!(rules.name("CN=ÄİΣ").as_deref(), Some("äi̇ς"));
        assert_eq!(rules.name("O=x"), None);
        rules.push_default();
        assert_eq!(rules.name("O=x").as_deref(), Some("O=x"));
        assert_eq!(PrincipalRules::default().name("").as_deref(), Some(""));
    }

    #[test]
    fn every_match_is_replaced_as_by_java() {
        for (pattern, with, name) in [
            (".*", "x", "xx"),
            ("^.*$", "x", "x"),
            ("^CN=(.*?)$", "$1", "alice,OU=dev,O=krust,C=DE"),
            ("CN=(.*?)", "$1", "alice,OU=dev,O=krust,C=DE"),
            ("CN=(.*),OU=.*", "", ""),
            ("(?:CN=(.*?),.*)|y", "[$1]", "[alice]"),
            ("CN=(?<n>\\w+),.*", "${n}!", "alice!"),
        ] {
            assert_eq!(named(pattern, with, ALICE).as_deref(), Some(name), "{pattern}");
        }
        assert_eq!(named("ü?|x|ü", "-", "ü").as_deref(), Some("--"));
    }

    #[test]
    fn groups_that_a_pattern_lacks_are_text_if_it_has_any() {
        let pattern = "CN=(\\w+),.*";
        for (with, name) in [
            ("$1@$2", "alice@$2"),
            ("$1@$12", "alice@alice2"),
            ("a$01", "aalice"),
            ("$0", ALICE),
            ("a\\/b\\,c\\$1\\n", "a/b,c$1n"),
            ("$1\\\\", "alice\\"),
            ("$99999999999999999999", "$99999999999999999999"),
        ] {
            assert_eq!(named(pattern, with, ALICE).as_deref(), Some(name), "{with}");
        }
        assert_eq!(named("CN=(a)(b)?.*", "$1-$2", "CN=ac").as_deref(), Some("a-"));
        for with in ["a$", "a$x", "${m}", "${", "${}", "a\\"] {
            refused(pattern, with);
        }
        assert!(refused("CN=\\w+", "$1").contains("no group"));
    }

    #[test]
    fn classes_are_those_of_java() {
        assert_eq!(named("CN=(\\w*)", "$1", "CN=ä"), None);
        assert_eq!(named("CN=(.*)", "$1", "CN=a\u{2028}b"), None);
        assert_eq!(named("CN=[.]\\.", "x", "CN=.."), Some("x".to_owned()));
        assert_eq!(named("CN=[.].", "x", "CN=a."), None);
        assert_eq!(named("CN=\\p{Alpha}+\\P{Alpha}", "x", "CN=aä"), Some("x".to_owned()));
        assert_eq!(named("CN=[\\w-]+\\S\\D", "x", "CN=a-bc\u{663}"), Some("x".to_owned()));
        assert_eq!(named("CN=\\Qa.(\\E\\Q.", "x", "CN=a.(."), Some("x".to_owned()));
        assert_eq!(named("CN=[]a][^]a]", "x", "CN=]b"), Some("x".to_owned()));
        assert_eq!(named("CN=a\\/b\\,\\-\\ü", "x", "CN=a/b,-ü"), Some("x".to_owned()));
        assert_eq!(named("CN=[&~-]+\\x{41}+\\pL+", "x", "CN=&~-Aä"), Some("x".to_owned()));
        assert_eq!(named("CN=[^\\w&]+\\[[\\[.(+]+", "x", "CN=ä[.(+"), Some("x".to_owned()));
        assert_eq!(named("CN=\\x41\\u0042\\t", "x", "CN=AB\t"), Some("x".to_owned()));
    }

    #[test]
    fn patterns_that_differ_from_java_are_refused() {
        let wrong = r"( [ a)(b * \ (?=a) (?<=a)b (?<!a)b (?>a) (?i)a (?i:a) (a)\1 a++ a*+ a?+
            a{2}+ [a]++ [a--b] [a~~b] [a&&b] [a[b]] [[:alpha:]] \p{L \x{41 \Z \G \h
            \p{javaLowerCase} \k<n> \0 a{100000000}";
        for wrong in wrong.split_whitespace() {
            assert!(rules(&[(wrong, "x", LetterCase::Kept)]).is_err(), "{wrong}");
        }
    }
}
