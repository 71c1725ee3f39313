//! Plain names: a name says what it stands for, in the field's own words.
//!
//! The lists hold words and names that the project has replaced, so that they do not come back.
//! The words that no text may use are in `language.rs`, which looks at the parts of names too.

use proc_macro2::{TokenStream, TokenTree};

use crate::files::{self, TextFile};
use crate::finish;
use crate::shape::each;

#[test]
fn names_are_plain() {
    let files: Vec<_> =
        files::rust().into_iter().filter(|file| !file.path.starts_with("tests/tidy")).collect();
    finish("CONTRIBUTING.md, plain language: these names are not used", &each(&files, is_plain));
}

fn is_plain(file: &TextFile) -> Vec<String> {
    let tokens = file.text.parse().unwrap_or_else(|_| panic!("{}", file.path.display()));
    let mut complaints = Vec::new();
    visit_names(tokens, &mut |line, name| {
        let is_replaced = REPLACED_NAMES.contains(&name)
            || parts(name).iter().any(|part| REPLACED_PARTS.contains(&&**part));
        if is_replaced {
            complaints.push(file.complaint(line, &format!("the name {name:?}")));
        }
    });
    complaints
}

/// Calls `visit` with the line of each identifier, also in macros, and the identifier.
fn visit_names(tokens: TokenStream, visit: &mut impl FnMut(usize, &str)) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => visit_names(group.stream(), visit),
            TokenTree::Ident(name) => visit(name.span().start().line, &name.to_string()),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

/// The words of a name in lower case: those between underscores or capital letters.
pub(crate) fn parts(name: &str) -> Vec<String> {
    let mut spaced = String::new();
    let mut after_small = false;
    for letter in name.chars() {
        if letter.is_uppercase() && after_small {
            spaced.push('_');
        }
        after_small = letter.is_lowercase() || letter.is_numeric();
        spaced.extend(letter.to_lowercase());
    }
    spaced.split('_').filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// Metaphors, each with a word of the field: a permit, a time-out, a waker, a decision.
const REPLACED_PARTS: [&str; 14] = [
    "asker", "belief", "crowded", "doubt", "fruitful", "hammer", "hoped", "judge", "judged",
    "owed", "patience", "truth", "vouch", "vouching",
];

/// Participles and adjectives that leave open what they describe.
const REPLACED_NAMES: [&str; 39] = [
    "Again",
    "Ask",
    "Asked",
    "Bell",
    "Carry",
    "EARLY",
    "FULL",
    "FULL_LIFE",
    "Found",
    "Gathered",
    "Ground",
    "HEAD_START",
    "Hold",
    "JUST_OVER",
    "Kept",
    "Known",
    "Landing",
    "Looking",
    "Made",
    "OFTEN",
    "OVERDUE",
    "PAUSE",
    "Passed",
    "Purpose",
    "Remembered",
    "Room",
    "SETTLING",
    "SHORT",
    "Share",
    "Shown",
    "Spoken",
    "Taken",
    "Told",
    "Trouble",
    "Turn",
    "Watched",
    "What",
    "lost_meanwhile",
    "one_client",
];

#[test]
fn each_rule_fails_when_broken() {
    let count = |text| is_plain(&crate::shape::file("src/a.rs", text)).len();
    assert_eq!(count("struct Taken;"), 1);
    assert_eq!(count("fn f() { let cannot_vouch = macro_of!(Doubt); }"), 2);
    assert_eq!(count("const PATIENCE: u8 = 1;\nenum A { JudgedHere }"), 2);
    assert_eq!(
        count("// A Doubt is taken.\nstruct Doubts(&'static str);\nfn taken() -> \"Seat\" {}"),
        0
    );
    assert_eq!(parts("HTTP2MaxSeen_told"), ["http2", "max", "seen", "told"]);
}
