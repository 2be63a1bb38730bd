//! Java's regular expressions for krust's engine.
//!
//! What would mean something else there is translated: `.` (no end of a line), `\w`, `\d`, `\s` and
//! `\p{Alpha}` (ASCII), `\Q...\E`. What the engine lacks is refused: look-around, back references,
//! possessive quantifiers. So is what differs: flags, and in brackets other brackets, `&&`, `--`
//! and `~~`.
//! Threads: any; pure.

/// Java's names for ASCII classes, and those of krust's engine.
const POSIX: [(&str, &str); 13] = [
    ("ASCII", "ascii"),
    ("Alnum", "alnum"),
    ("Alpha", "alpha"),
    ("Blank", "blank"),
    ("Cntrl", "cntrl"),
    ("Digit", "digit"),
    ("Graph", "graph"),
    ("Lower", "lower"),
    ("Print", "print"),
    ("Punct", "punct"),
    ("Space", "space"),
    ("Upper", "upper"),
    ("XDigit", "xdigit"),
];

/// The pattern for krust's engine, with Java's meaning.
pub(crate) fn translated(pattern: &str) -> Result<String, String> {
    let mut made = String::with_capacity(pattern.len());
    let mut in_brackets = false;
    let mut rest = pattern;
    while let Some(each) = rest.chars().next() {
        let after = rest.get(each.len_utf8()..).unwrap_or_default();
        rest = match each {
            '\\' => escape(after, &mut made)?,
            '[' if in_brackets => {
                return Err("brackets in brackets: write \\[ for the character".to_owned());
            }
            '[' => {
                in_brackets = true;
                let begin = after.strip_prefix('^').unwrap_or(after);
                let begin = begin.strip_prefix(']').unwrap_or(begin);
                let begin = after.len() - begin.len();
                made.push('[');
                made.push_str(&after.get(..begin).unwrap_or_default().replace(']', "\\]"));
                after.get(begin..).unwrap_or_default()
            }
            ']' => {
                in_brackets = false;
                made.push(each);
                after
            }
            '-' | '~' | '&' if in_brackets && after.starts_with(each) => {
                return Err(format!("{each}{each} in brackets: write \\{each}"));
            }
            '.' if !in_brackets => {
                made.push_str("[^\\n\\r\\x{85}\\x{2028}\\x{2029}]");
                after
            }
            '(' if !in_brackets && after.starts_with('?') => {
                plain_group(after)?;
                made.push(each);
                after
            }
            '*' | '+' | '?' | '}' if !in_brackets && after.starts_with('+') => {
                return Err(format!("{each}+ is a possessive quantifier, which krust lacks"));
            }
            _ => {
                made.push(each);
                after
            }
        };
    }
    Ok(made)
}

/// Refuses a group that is more than one, by what follows its parenthesis.
fn plain_group(after: &str) -> Result<(), String> {
    let name = after.strip_prefix("?<").and_then(|name| name.chars().next());
    if after.starts_with("?:") || name.is_some_and(|first| first.is_ascii_alphabetic()) {
        return Ok(());
    }
    let begin: String = after.chars().take(3).collect();
    Err(format!("({begin}: krust has no look-around and no flags in patterns; write [Aa] for (?i)"))
}

/// Appends what an escape means, and returns what follows it.
fn escape<'p>(after: &'p str, made: &mut String) -> Result<&'p str, String> {
    let Some(each) = after.chars().next() else {
        return Err("its pattern ends with a backslash".to_owned());
    };
    let rest = after.get(each.len_utf8()..).unwrap_or_default();
    if matches!(each, 'p' | 'P' | 'x')
        && let Some((name, rest)) = rest.strip_prefix('{').and_then(|text| text.split_once('}'))
    {
        let posix = POSIX.iter().find(|(java, _)| *java == name).map(|(_, posix)| posix);
        match posix.filter(|_| each != 'x') {
            Some(posix) if each == 'P' => made.push_str(&format!("[[:^{posix}:]]")),
            Some(posix) => made.push_str(&format!("[[:{posix}:]]")),
            None => made.push_str(&format!("\\{each}{{{name}}}")),
        }
        return Ok(rest);
    }
    match each {
        'w' => made.push_str("[[:word:]]"),
        'W' => made.push_str("[[:^word:]]"),
        'd' => made.push_str("[[:digit:]]"),
        'D' => made.push_str("[[:^digit:]]"),
        's' => made.push_str("[[:space:]]"),
        'S' => made.push_str("[[:^space:]]"),
        'Q' => {
            let (quoted, rest) = rest.split_once("\\E").unwrap_or((rest, ""));
            made.push_str(&regex::escape(quoted));
            return Ok(rest);
        }
        'n' | 'r' | 't' | 'x' | 'u' | 'f' | 'a' | 'b' | 'B' | 'A' | 'z' | 'p' | 'P' => {
            made.extend(['\\', each]);
        }
        _ if each.is_ascii_alphanumeric() => {
            return Err(format!("\\{each} in a pattern, which krust does not have"));
        }
        _ => made.push_str(&regex::escape(each.encode_utf8(&mut [0; 4]))),
    }
    Ok(rest)
}
