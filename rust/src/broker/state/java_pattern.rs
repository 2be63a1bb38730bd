//! Java's regular expressions for krust's engine.
//!
//! What would mean something else there is translated: `.` (no end of a line), `\w`, `\d`, `\s` and
//! `\p{Alpha}` (ASCII), `\Q...\E`. What the engine lacks is refused: look-around, back references,
//! possessive quantifiers. So are flags, and `--` and `~~` in brackets, which differ.
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
    let mut brackets = 0_usize;
    let mut rest = pattern;
    while let Some(each) = rest.chars().next() {
        let after = rest.get(each.len_utf8()..).unwrap_or_default();
        rest = match each {
            '\\' => escape(after, &mut made)?,
            '[' => {
                brackets += 1;
                let begin = after.strip_prefix('^').unwrap_or(after);
                let begin = begin.strip_prefix(']').unwrap_or(begin);
                let begin = after.len() - begin.len();
                made.push('[');
                made.push_str(&after.get(..begin).unwrap_or_default().replace(']', "\\]"));
                after.get(begin..).unwrap_or_default()
            }
            ']' => {
                brackets = brackets.saturating_sub(1);
                made.push(each);
                after
            }
            '-' | '~' if brackets > 0 && after.starts_with(each) => {
                return Err(format!("{each}{each} in brackets: write \\{each}"));
            }
            '.' if brackets == 0 => {
                made.push_str("[^\\n\\r\\x{85}\\x{2028}\\x{2029}]");
                after
            }
            '(' if brackets == 0 && after.starts_with('?') => {
                plain_group(after)?;
                made.push(each);
                after
            }
            '*' | '+' | '?' | '}' if brackets == 0 && after.starts_with('+') => {
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
        'p' | 'P' => {
            let class = rest.strip_prefix('{').and_then(|class| class.split_once('}'));
            let posix = class.and_then(|(name, rest)| {
                let (_, posix) = POSIX.iter().find(|(java, _)| *java == name)?;
                Some((posix, rest))
            });
            if let Some((posix, rest)) = posix {
                let not = if each == 'P' { "^" } else { "" };
                made.push_str(&format!("[[:{not}{posix}:]]"));
                return Ok(rest);
            }
            made.extend(['\\', each]);
        }
        'n' | 'r' | 't' | 'x' | 'u' | 'f' | 'a' | 'b' | 'B' | 'A' | 'z' => {
            made.extend(['\\', each])
        }
        _ if each.is_ascii_alphanumeric() => {
            return Err(format!("\\{each} in a pattern, which krust does not have"));
        }
        _ => made.push_str(&regex::escape(each.encode_utf8(&mut [0; 4]))),
    }
    Ok(rest)
}
