//! Replaces known names in a text, in one pass.
//!
//! At each beginning of a word it looks for the longest name that begins there and ends at the end
//! of a word. So `jane` in `janet` stays, and `jane@example.com` is one name. A name of
//! [`NAME_BYTES_MAX`] bytes may be the beginning of a longer one: the rest of its word goes too.

use std::collections::HashMap;

use crate::cli::operator::bundle::redact::common::is_word;
use crate::cli::operator::bundle::redact::names::NAME_BYTES_MAX;

/// Names and their words.
#[derive(Debug)]
pub(in crate::cli::operator::bundle) struct Replacer {
    /// By the first letter of the name, the longest first.
    names: HashMap<char, Vec<Form>>,
}

/// A name as a text may have it.
#[derive(Debug)]
struct Form {
    text: String,
    word: String,
    /// Whether it may be the beginning of a longer name.
    may_be_cut: bool,
}

impl Replacer {
    pub(super) fn new<'a>(names: impl Iterator<Item = (&'a str, String)>) -> Self {
        let mut by_letter: HashMap<char, Vec<Form>> = HashMap::new();
        for (name, word) in names.filter(|(name, _)| !is_word(name)) {
            let may_be_cut = name.len() + 3 >= NAME_BYTES_MAX;
            for text in forms(name) {
                let Some(first) = text.chars().next() else { continue };
                let form = Form { text, word: word.clone(), may_be_cut };
                by_letter.entry(first).or_default().push(form);
            }
        }
        for names in by_letter.values_mut() {
            names.sort_by_key(|form| std::cmp::Reverse(form.text.len()));
        }
        Self { names: by_letter }
    }

    /// Returns the text with words in place of names.
    pub(super) fn replace(&self, text: &str) -> String {
        let mut replaced = String::with_capacity(text.len());
        let mut rest = text;
        let mut before: Option<char> = None;
        while let Some(first) = rest.chars().next() {
            let is_inside = first.is_alphanumeric() && before.is_some_and(char::is_alphanumeric);
            let is_start = !is_inside || is_after_escape(text, text.len() - rest.len());
            if is_start && let Some((word, after)) = self.name_at(first, rest) {
                replaced.push_str(word);
                rest = after;
                before = word.chars().next_back();
                continue;
            }
            replaced.push(first);
            before = Some(first);
            rest = rest.strip_prefix(first).unwrap_or_default();
        }
        replaced
    }

    /// Returns the word of the longest name at the beginning of a text, and what follows.
    fn name_at<'a, 'b>(&'a self, first: char, text: &'b str) -> Option<(&'a str, &'b str)> {
        self.names.get(&first)?.iter().find_map(|form| {
            let Form { text: name, word, may_be_cut } = form;
            let after = text.strip_prefix(name.as_str())?;
            if *may_be_cut {
                return Some((word.as_str(), after.trim_start_matches(is_part_of_name)));
            }
            let is_inside = name.chars().next_back().is_some_and(char::is_alphanumeric)
                && !is_after_escape(name, name.len())
                && after.chars().next().is_some_and(char::is_alphanumeric);
            (!is_inside).then_some((word.as_str(), after))
        })
    }
}

/// Returns the forms in which texts have a name: as it is, as Rust prints it in a literal, where
/// quotes and control characters are escaped, and as URLs have it.
fn forms(name: &str) -> Vec<String> {
    let encoded = percent_encoded(name, |byte| format!("%{byte:02X}"));
    let with_plus = encoded.replace("%20", "+");
    let in_lower_case = percent_encoded(name, |byte| format!("%{byte:02x}"));
    let mut forms = vec![name.to_owned()];
    for form in [name.escape_debug().to_string(), encoded, with_plus, in_lower_case] {
        if !forms.contains(&form) {
            forms.push(form);
        }
    }
    forms
}

/// Percent-encodes all that is special in some part of a URL.
fn percent_encoded(name: &str, escape: impl Fn(u8) -> String) -> String {
    let mut encoded = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&escape(byte));
        }
    }
    encoded
}

/// Whether the text before `at` ends with a percent-encoded byte: a word begins after it.
fn is_after_escape(text: &str, at: usize) -> bool {
    let before = at.checked_sub(3).and_then(|start| text.as_bytes().get(start..at));
    matches!(before, Some([b'%', one, two])
        if one.is_ascii_hexdigit() && two.is_ascii_hexdigit())
}

/// Whether the rest of a name that was cut may have this letter.
fn is_part_of_name(letter: char) -> bool {
    letter.is_alphanumeric() || "-._:@/+%…".contains(letter)
}
