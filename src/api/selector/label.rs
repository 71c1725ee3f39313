//! Label selectors (semantics.md §7.3).
//!
//! The lexer and the parser take the turns that the upstream's take, odd ones included: `a in (b,c,)` selects
//! the empty value as well, and `a in (b,,)` is refused.

use smallvec::SmallVec;

/// A parsed label selector: a conjunction of requirements. The default one matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

impl LabelSelector {
    /// Parses the text of `labelSelector`; `None` if the upstream would refuse it.
    pub fn parse(text: &str) -> Option<Self> {
        // The upstream's lexer takes a NUL for the end of a token; nobody needs that, so it is forwarded.
        if text.contains('\0') {
            return None;
        }
        Parser::new(text).selector()
    }

    /// Whether it matches everything by having no requirement.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// How many comparisons it may take to see whether labels match.
    pub fn terms(&self) -> usize {
        self.requirements.iter().map(|requirement| requirement.condition.terms()).sum()
    }

    /// Whether labels match, of which `value_of` tells one by its key.
    pub fn matches<'a>(&self, value_of: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements
            .iter()
            .all(|requirement| requirement.condition.holds(value_of(&requirement.key)))
    }

    /// The requirements as authorization knows them, in the order in which they were written: a key, an operator, and values sorted and
    /// without repetition. `>` and `<`, for which it has no operator, are left out (semantics.md §12.3).
    pub(crate) fn for_authorization(
        &self,
    ) -> impl Iterator<Item = (&str, LabelOperator, &[Box<str>])> {
        self.requirements.iter().filter_map(|requirement| {
            let (operator, values): (_, &[Box<str>]) = match &requirement.condition {
                Condition::Absent => (LabelOperator::DoesNotExist, &[]),
                Condition::In(values) => (LabelOperator::In, values),
                Condition::NotIn(values) => (LabelOperator::NotIn, values),
                Condition::Present => (LabelOperator::Exists, &[]),
                Condition::GreaterThan(_) | Condition::LessThan(_) => return None,
            };
            Some((&*requirement.key, operator, values))
        })
    }
}

/// The operators of `metav1.LabelSelectorRequirement`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LabelOperator {
    /// The key must be absent.
    DoesNotExist,
    /// The key must be there.
    Exists,
    /// The value must be one of these.
    In,
    /// The value, if there is one, must be none of these.
    NotIn,
}

impl LabelOperator {
    /// The word in Kubernetes' objects.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DoesNotExist => "DoesNotExist",
            Self::Exists => "Exists",
            Self::In => "In",
            Self::NotIn => "NotIn",
        }
    }
}

/// What one key must satisfy.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: Box<str>,
    condition: Condition,
}

/// The operators that differ in meaning: `=` and `==` are `In` of one value, `!=` is `NotIn` of one.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Condition {
    Absent,
    GreaterThan(i64),
    In(SmallVec<[Box<str>; 1]>),
    LessThan(i64),
    NotIn(SmallVec<[Box<str>; 1]>),
    Present,
}

impl Condition {
    fn terms(&self) -> usize {
        match self {
            Self::Absent | Self::GreaterThan(_) | Self::LessThan(_) | Self::Present => 1,
            Self::In(values) | Self::NotIn(values) => values.len().max(1),
        }
    }

    fn holds(&self, value: Option<&str>) -> bool {
        match (self, value) {
            (Self::Absent, value) => value.is_none(),
            (Self::NotIn(_), None) => true,
            (_, None) => false,
            (Self::GreaterThan(bound), Some(value)) => value.parse().is_ok_and(|n: i64| n > *bound),
            (Self::In(values), Some(value)) => values.iter().any(|one| **one == *value),
            (Self::LessThan(bound), Some(value)) => value.parse().is_ok_and(|n: i64| n < *bound),
            (Self::NotIn(values), Some(value)) => values.iter().all(|one| **one != *value),
            (Self::Present, Some(_)) => true,
        }
    }
}

/// Keywords are words to the lexer; the parser knows them where an operator may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    Close,
    Comma,
    End,
    Equal,
    Greater,
    Less,
    Not,
    NotEqual,
    Open,
    Word(&'a str),
}

struct Parser<'a> {
    rest: &'a str,
    /// The next token, already taken off `rest`.
    next: Token<'a>,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        let mut parser = Self { rest: text, next: Token::End };
        parser.advance();
        parser
    }

    fn selector(mut self) -> Option<LabelSelector> {
        let mut requirements = Vec::new();
        if self.next == Token::End {
            return Some(LabelSelector { requirements });
        }
        loop {
            requirements.push(self.requirement()?);
            match self.advance() {
                Token::End => return Some(LabelSelector { requirements }),
                Token::Comma => {}
                _ => return None,
            }
        }
    }

    fn requirement(&mut self) -> Option<Requirement> {
        let negated = self.next == Token::Not;
        if negated {
            self.advance();
        }
        let Token::Word(key) = self.advance() else {
            return None;
        };
        let unary = matches!(self.next, Token::End | Token::Comma);
        let condition = match (negated, unary) {
            (true, true) => Condition::Absent,
            (false, true) => Condition::Present,
            (true, false) => return None,
            (false, false) => self.condition()?,
        };
        is_qualified_name(key).then(|| Requirement { key: key.into(), condition })
    }

    fn condition(&mut self) -> Option<Condition> {
        match self.advance() {
            Token::Equal => self.value().map(|value| Condition::In([value].into_iter().collect())),
            Token::NotEqual => {
                self.value().map(|value| Condition::NotIn([value].into_iter().collect()))
            }
            Token::Greater => self.value()?.parse().ok().map(Condition::GreaterThan),
            Token::Less => self.value()?.parse().ok().map(Condition::LessThan),
            Token::Word("in") => self.values().map(Condition::In),
            Token::Word("notin") => self.values().map(Condition::NotIn),
            _ => None,
        }
    }

    /// The one value of `=` and its like; nothing stands for the empty string.
    fn value(&mut self) -> Option<Box<str>> {
        match self.next {
            Token::End | Token::Comma => Some("".into()),
            Token::Word(word) if is_label_value(word) => {
                self.advance();
                Some(word.into())
            }
            _ => None,
        }
    }

    /// `(a,b)`, where a gap stands for the empty string. Two commas are one gap, so that a third token must follow.
    fn values(&mut self) -> Option<SmallVec<[Box<str>; 1]>> {
        if self.advance() != Token::Open {
            return None;
        }
        let mut values = SmallVec::new();
        if self.next == Token::Close {
            values.push("".into());
        }
        while self.next != Token::Close {
            match self.advance() {
                Token::Word(word) if is_label_value(word) => {
                    values.push(word.into());
                    if !matches!(self.next, Token::Comma | Token::Close) {
                        return None;
                    }
                }
                Token::Comma => {
                    let gap = self.next == Token::Comma;
                    if gap || values.is_empty() || self.next == Token::Close {
                        values.push("".into());
                    }
                    if gap {
                        self.advance();
                    }
                    if gap && self.next == Token::Close {
                        return None;
                    }
                }
                _ => return None,
            }
        }
        self.advance();
        values.sort_unstable();
        values.dedup();
        Some(values)
    }

    /// Takes the next token and reads the one after it.
    fn advance(&mut self) -> Token<'a> {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
        let (token, length) = scan(self.rest);
        self.rest = self.rest.get(length..).unwrap_or_default();
        std::mem::replace(&mut self.next, token)
    }
}

/// The token at the front of a text, and its length in bytes. The longest symbol wins.
fn scan(text: &str) -> (Token<'_>, usize) {
    match text.as_bytes() {
        [] => (Token::End, 0),
        [b'=', b'=', ..] => (Token::Equal, 2),
        [b'=', ..] => (Token::Equal, 1),
        [b'!', b'=', ..] => (Token::NotEqual, 2),
        [b'!', ..] => (Token::Not, 1),
        [b'(', ..] => (Token::Open, 1),
        [b')', ..] => (Token::Close, 1),
        [b',', ..] => (Token::Comma, 1),
        [b'>', ..] => (Token::Greater, 1),
        [b'<', ..] => (Token::Less, 1),
        _ => {
            let end = text.find(END_OF_WORD).unwrap_or(text.len());
            (Token::Word(text.get(..end).unwrap_or_default()), end)
        }
    }
}

const END_OF_WORD: [char; 11] = ['=', '!', '(', ')', ',', '>', '<', ' ', '\t', '\r', '\n'];

/// A label key: a name, or a DNS subdomain, a slash and a name.
fn is_qualified_name(key: &str) -> bool {
    match key.split_once('/') {
        None => is_name(key),
        Some((prefix, name)) => is_dns_subdomain(prefix) && is_name(name),
    }
}

/// A label value: a name or nothing.
fn is_label_value(value: &str) -> bool {
    value.is_empty() || is_name(value)
}

/// Letters, digits and `-_.` within, at most [`NAME_BYTES_MAX`].
fn is_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else {
        return false;
    };
    bytes.len() <= NAME_BYTES_MAX
        && first.is_ascii_alphanumeric()
        && last.is_ascii_alphanumeric()
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

/// Dotted lower-case parts, at most [`SUBDOMAIN_BYTES_MAX`] together.
fn is_dns_subdomain(domain: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    domain.len() <= SUBDOMAIN_BYTES_MAX
        && domain.split('.').all(|part| {
            part.bytes().next().is_some_and(inner)
                && part.bytes().next_back().is_some_and(inner)
                && part.bytes().all(|byte| inner(byte) || byte == b'-')
        })
}

/// Kubernetes' limit on names and values in labels.
const NAME_BYTES_MAX: usize = 63;

/// Kubernetes' limit on the prefix of a label's key (RFC 1123).
const SUBDOMAIN_BYTES_MAX: usize = 253;

#[cfg(test)]
mod tests;
