//! Which form of answer a request's `Accept` asks for (semantics.md §8.1, §8.2, §8.6).
//!
//! The upstream sorts the clauses with an unstable sort and a comparison that is no order, so where
//! wildcards are among clauses of different candidate and quality, its choice hangs on its sorting algorithm. Such a header is
//! not decided here but forwarded, and so is any whose syntax is not the plain one.

use std::cmp::Ordering;

use smallvec::SmallVec;

use super::form::{Encoding, Form, PARTIAL_OBJECT_METADATA, PARTIAL_OBJECT_METADATA_LIST, View};
use crate::api::request_info::Verb;
use crate::api::resource::Shape;

/// The form that a header asks for; `None` if it asks for anything that Weir does not serve, or may.
pub(super) fn negotiate_accept(accept: &str, shape: Shape, verb: Verb) -> Option<Form> {
    if shape == Shape::BuiltIn && !passes_prefilter(accept) {
        return None;
    }
    let clauses: SmallVec<[Clause<'_>; CLAUSES_USUAL]> =
        accept.split(',').filter_map(parse_clause).collect::<Option<_>>()?;
    let mut candidates: SmallVec<[(&Clause<'_>, Candidate); CLAUSES_USUAL]> = clauses
        .iter()
        .map(|clause| (clause, clause.candidate(shape, verb)))
        .filter(|(_, candidate)| *candidate != Candidate::Skip)
        .collect();
    let (_, first) = *candidates.first()?;
    if candidates.iter().any(|(_, candidate)| *candidate != first) {
        let (quality, wildcards) =
            (clauses.first()?.quality, clauses.iter().any(Clause::is_wildcard));
        let equal = clauses.iter().all(|clause| clause.quality == quality);
        let plain = clauses.iter().all(|clause| clause.quality.is_some());
        if clauses.len() > STABLE_CLAUSES_MAX || !plain || (wildcards && !equal) {
            return None;
        }
        candidates.sort_by(|(a, _), (b, _)| {
            let quality = b.quality.partial_cmp(&a.quality).unwrap_or(Ordering::Equal);
            quality
                .then(a.kind_is_wild().cmp(&b.kind_is_wild()))
                .then(a.is_wildcard().cmp(&b.is_wildcard()))
        });
    }
    match candidates.first()? {
        (_, Candidate::Form(form)) => Some(*form),
        (_, Candidate::NotServed | Candidate::Skip) => None,
    }
}

/// What one clause comes to by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Candidate {
    /// A form that Weir serves.
    Form(Form),
    /// Something that Weir does not serve itself.
    NotServed,
    /// Nothing: the upstream goes on to the next clause.
    Skip,
}

/// One clause of an `Accept` header.
struct Clause<'a> {
    kind: &'a str,
    subtype: &'a str,
    params: Vec<(&'a str, &'a str)>,
    /// `None` if it is not written as a plain decimal fraction.
    quality: Option<f32>,
}

impl Clause<'_> {
    fn kind_is_wild(&self) -> bool {
        self.kind == "*"
    }

    fn is_wildcard(&self) -> bool {
        self.kind == "*" || self.subtype == "*"
    }

    fn candidate(&self, shape: Shape, verb: Verb) -> Candidate {
        // Later parameters of one name replace the earlier ones.
        let param = |name| self.params.iter().rev().find(|(key, _)| *key == name).map(|(_, v)| *v);
        let conversion = [param("as"), param("g"), param("v")];
        let converts = conversion.iter().any(Option::is_some);
        let encoding = match (self.kind, self.subtype) {
            ("application", "json" | "*") | ("*", "*") => Some(Encoding::Json),
            ("application", "vnd.kubernetes.protobuf") if shape == Shape::Custom && !converts => {
                return Candidate::Skip;
            }
            ("application", "vnd.kubernetes.protobuf") => Some(Encoding::Protobuf),
            ("application", "yaml" | "cbor" | "cbor-seq") => None,
            _ => return Candidate::Skip,
        };
        if !matches!(param("stream"), None | Some("" | "watch"))
            || !matches!(param("sv"), None | Some("" | "v1"))
        {
            return Candidate::Skip;
        }
        let Some(encoding) = encoding else { return Candidate::NotServed };
        let view = match converts.then(|| convert(conversion, verb)) {
            None => View::Full,
            Some(Conversion::Metadata) => View::Metadata,
            Some(Conversion::Table) if encoding == Encoding::Json => return Candidate::NotServed,
            Some(Conversion::OtherMetadata) => return Candidate::NotServed,
            Some(Conversion::Table | Conversion::None) => return Candidate::Skip,
        };
        let pretty = encoding == Encoding::Json && param("pretty") == Some("1");
        Candidate::Form(Form { encoding, view, pretty })
    }
}

/// What `as`, `g` and `v` come to (semantics.md §8.1).
enum Conversion {
    /// The metadata-only view that Weir serves.
    Metadata,
    /// A Table, which JSON and YAML have.
    Table,
    /// A metadata-only view that Weir leaves to the upstream: one of the older `v1beta1`, or one
    /// whose kind does not fit the verb (a list's for a get, or the reverse), which ends in 406.
    OtherMetadata,
    /// No target that the upstream knows: it passes over the clause.
    None,
}

fn convert(conversion: [Option<&str>; 3], verb: Verb) -> Conversion {
    let [Some(kind), Some("meta.k8s.io"), Some(version)] = conversion else {
        return Conversion::None;
    };
    if !matches!(version, "v1" | "v1beta1") {
        return Conversion::None;
    }
    let metadata =
        if verb == Verb::List { PARTIAL_OBJECT_METADATA_LIST } else { PARTIAL_OBJECT_METADATA };
    match kind {
        "Table" => Conversion::Table,
        kind if kind == metadata && version == "v1" => Conversion::Metadata,
        PARTIAL_OBJECT_METADATA | PARTIAL_OBJECT_METADATA_LIST => Conversion::OtherMetadata,
        _ => Conversion::None,
    }
}

/// Clauses that stand without an allocation: as many as Kubernetes' own clients send.
const CLAUSES_USUAL: usize = 3;

/// Up to here Go's sort is an insertion sort, and so keeps the order of equal clauses.
const STABLE_CLAUSES_MAX: usize = 12;

/// go-restful's own look at the header, which knows no wildcard but `*/*` (semantics.md §8.2).
fn passes_prefilter(accept: &str) -> bool {
    accept.split(',').any(|clause| {
        let media_type = clause.split(';').next().unwrap_or_default().trim_matches(' ');
        matches!(
            media_type,
            "*/*" | "application/json" | "application/yaml" | "application/vnd.kubernetes.protobuf"
        )
    })
}

/// Parses a clause: `None` if the upstream drops it, `Some(None)` if it is not written plainly, so that releases of
/// the upstream may read it in different ways.
fn parse_clause(clause: &str) -> Option<Option<Clause<'_>>> {
    let mut parts = clause.split(';');
    let media_type = parts.next().unwrap_or_default().trim_matches(' ');
    let (kind, subtype) = match media_type.split_once('/') {
        None if media_type == "*" => ("*", "*"),
        None => return None,
        Some((_, subtype)) if subtype.contains('/') => return None,
        Some(both) => both,
    };
    if !is_token(kind) || !is_token(subtype) {
        return Some(None);
    }
    let mut parsed = Clause { kind, subtype, params: Vec::new(), quality: Some(1.0) };
    for part in parts {
        let Some((name, value)) = part.split_once('=') else {
            // A parameter without a value is passed over.
            continue;
        };
        let name = name.trim_matches(' ');
        if name == "q" {
            parsed.quality = parse_quality(value);
        } else if is_token(name) && (value.is_empty() || is_token(value.trim_matches(' '))) {
            parsed.params.push((name, value.trim_matches(' ')));
        } else {
            return Some(None);
        }
    }
    Some(Some(parsed))
}

/// The quality where no reader can doubt it: digits and at most one point.
fn parse_quality(value: &str) -> Option<f32> {
    let plain = value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if plain { value.parse().ok() } else { None }
}

/// A token of RFC 9110: no blanks, quotes or separators.
fn is_token(text: &str) -> bool {
    let mark = |byte: u8| matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~');
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || mark(byte))
}
