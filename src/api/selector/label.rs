//! Label selectors (`docs/semantics.md` §7.3).
//!
//! Lexer and parser follow those of the API server in unusual cases, too: `a in (b,c,)` also
//! selects the empty value, and `a in (b,,)` is rejected.

use smallvec::SmallVec;

use crate::selector::ALLOCATION_BYTES;

/// A parsed label selector: a conjunction of requirements. The default matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

impl LabelSelector {
    /// Parses the text of `labelSelector`; `None` if the API server would reject it.
    pub fn parse(text: &str) -> Option<Self> {
        // The API server's lexer ends a token at a NUL byte. No real selector has one, so it is
        // forwarded.
        if text.contains('\0') {
            return None;
        }
        Parser::new(text).selector()
    }

    /// Whether it has no requirement and so matches everything.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Returns the maximum number of comparisons for one object.
    pub fn terms(&self) -> usize {
        self.requirements.iter().map(|requirement| requirement.condition.terms()).sum()
    }

    /// Returns the approximate memory in bytes. If there are many short terms, the text is the
    /// smallest part.
    pub fn weight_bytes(&self) -> usize {
        self.requirements.iter().map(Requirement::weight_bytes).sum()
    }

    /// Whether the labels match; `value_of` returns the value of a key.
    pub fn matches<'a>(&self, value_of: impl Fn(&str) -> Option<&'a [u8]>) -> bool {
        self.requirements
            .iter()
            .all(|requirement| requirement.condition.holds(value_of(&requirement.key)))
    }

    /// Returns the requirements in the form of `metav1.LabelSelectorRequirement` and in the order
    /// of the text: a key, an operator, and sorted values without duplicates. `>` and `<`, for
    /// which that has no operator, are left out (`docs/semantics.md` §12.3).
    pub fn requirements(&self) -> impl Iterator<Item = (&str, LabelOperator, &[Box<str>])> {
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

crate::labels! {
    /// The operators of `metav1.LabelSelectorRequirement`.
    pub enum LabelOperator {
        /// The key must be absent.
        DoesNotExist = "DoesNotExist",
        /// The key must be there.
        Exists = "Exists",
        /// The value must be one of these.
        In = "In",
        /// The value, if there is one, must be none of these.
        NotIn = "NotIn",
    }
}

/// A condition on the value of one key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Requirement {
    key: Box<str>,
    condition: Condition,
}

impl Requirement {
    fn weight_bytes(&self) -> usize {
        let values: &[Box<str>] = match &self.condition {
            Condition::In(values) | Condition::NotIn(values) => values,
            _ => &[],
        };
        let value_bytes = size_of::<Box<str>>() + ALLOCATION_BYTES;
        let values = values.iter().map(|value| value_bytes + value.len());
        size_of::<Self>() + ALLOCATION_BYTES + self.key.len() + values.sum::<usize>()
    }
}

/// The operators with different meanings: `=` and `==` are `In` with one value, `!=` is `NotIn`
/// with one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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

    fn holds(&self, value: Option<&[u8]>) -> bool {
        let number = |value| std::str::from_utf8(value).ok()?.parse::<i64>().ok();
        match (self, value) {
            (Self::Absent, value) => value.is_none(),
            (Self::NotIn(_), None) => true,
            (_, None) => false,
            (Self::GreaterThan(bound), Some(value)) => number(value).is_some_and(|n| n > *bound),
            (Self::In(values), Some(value)) => {
                values.iter().any(|allowed| allowed.as_bytes() == value)
            }
            (Self::LessThan(bound), Some(value)) => number(value).is_some_and(|n| n < *bound),
            (Self::NotIn(values), Some(value)) => {
                values.iter().all(|allowed| allowed.as_bytes() != value)
            }
            (Self::Present, Some(_)) => true,
        }
    }
}

/// The tokens. Keywords are words for the lexer; the parser knows them in the position of an
/// operator.
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
    /// The next token, already removed from `rest`.
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

    /// Parses the value of `=`, `==`, `!=`, `>` or `<`. A missing value is the empty string.
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

    /// Parses `(a,b)`, where a gap stands for the empty string. Two commas are one gap and must be
    /// followed by another token than `)`.
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

    /// Returns the next token and reads the one after it.
    fn advance(&mut self) -> Token<'a> {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
        let (token, length) = scan(self.rest);
        self.rest = self.rest.get(length..).unwrap_or_default();
        std::mem::replace(&mut self.next, token)
    }
}

/// Returns the token at the start of a text, and its length in bytes. The longest symbol wins.
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

/// Whether `key` is a label key: a name, or a DNS subdomain, a slash and a name.
fn is_qualified_name(key: &str) -> bool {
    match key.split_once('/') {
        None => is_name(key),
        Some((prefix, name)) => is_dns_subdomain(prefix) && is_name(name),
    }
}

/// Whether `value` is a label value: a name or empty.
fn is_label_value(value: &str) -> bool {
    value.is_empty() || is_name(value)
}

/// Whether `name` begins and ends with a letter or digit, has only these and `-_.` between, and at
/// most [`NAME_BYTES_MAX`] bytes.
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

/// Whether `domain` consists of dotted lower-case parts with at most [`SUBDOMAIN_BYTES_MAX`] bytes
/// in total.
fn is_dns_subdomain(domain: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    domain.len() <= SUBDOMAIN_BYTES_MAX
        && domain.split('.').all(|part| {
            part.bytes().next().is_some_and(inner)
                && part.bytes().next_back().is_some_and(inner)
                && part.bytes().all(|byte| inner(byte) || byte == b'-')
        })
}

/// Kubernetes' limit for names and values in labels, in bytes.
const NAME_BYTES_MAX: usize = 63;

/// Kubernetes' limit for the prefix of a label's key (RFC 1123), in bytes.
const SUBDOMAIN_BYTES_MAX: usize = 253;

#[cfg(test)]
mod tests;
