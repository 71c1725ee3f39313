//! The server that must answer, by the tables of docs/semantics.md §1.4 to §1.6. This is a second
//! table, independent of the proxy's own, to check it line by line.

use super::forms::Form;
use super::read_request::{ReadRequest, Token, Verb, Version, WatchForm};

/// The server that answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    /// The cache, if it has the object; the upstream answers for an object that does not exist.
    Cache,
    /// The upstream: it writes the error, or makes the form.
    Upstream,
    /// Either: the tables allow a cache, but Weir's may lack the history.
    Either,
}

use Expect::{Cache, Either, Upstream};

impl Expect {
    /// Returns the expectation for a history that may not reach back far enough.
    pub(super) fn without_history(self) -> Self {
        if self == Cache { Either } else { self }
    }
}

/// Returns the server that must answer a read.
pub(crate) fn expected(read: &ReadRequest) -> Expect {
    if !read.collection.cached || read.head || form(read) == Form::Upstream {
        return Upstream;
    }
    let answer = match read.meaning() {
        Verb::Get(_) => get(read),
        Verb::List if !read.labels.good || !read.fields.good => Upstream,
        Verb::List => list(read),
        Verb::Watch(_) if !read.labels.good || !read.fields.good => Upstream,
        Verb::Watch(way) => watch(read, way),
    };
    // A request that can be parsed in more than one way may always be forwarded.
    let protobuf = matches!(form(read), Form::Protobuf | Form::PartialProtobuf);
    let may_lack = read.collection.json_only && protobuf;
    if answer == Cache && (is_odd(read) || may_lack || has_odd_error(read)) {
        Either
    } else {
        answer
    }
}

fn is_odd(read: &ReadRequest) -> bool {
    let escaped = matches!(read.verb, Verb::Get(name) if name.contains('%'));
    read.slash || escaped || read.idle.contains(['%', ';'])
}

/// Whether the error of a GET may be in protobuf although the object cannot.
fn has_odd_error(read: &ReadRequest) -> bool {
    let is_get = matches!(read.verb, Verb::Get(_));
    is_get
        && read.collection.custom
        && read.accept.texts.iter().any(|text| text.contains("protobuf"))
}

/// The form of the response.
pub(crate) fn form(read: &ReadRequest) -> Form {
    let forms = if read.collection.custom { &read.accept.custom } else { &read.accept.built_in };
    let [object, list, watch] = *forms;
    match read.meaning() {
        Verb::Get(_) => object,
        Verb::List => list,
        Verb::Watch(_) => watch,
    }
}

/// §1.6.3. Only the resourceVersion counts.
fn get(read: &ReadRequest) -> Expect {
    match read.version {
        Version::Zero | Version::Old | Version::Recent | Version::Current => Cache,
        Version::ZeroZero => Either,
        Version::Unset | Version::Empty | Version::Future | Version::Bad(_) => Upstream,
    }
}

/// §1.5, §1.6.1 and §1.6.2.
fn list(read: &ReadRequest) -> Expect {
    if !read.initial.is_empty() || is_bad_number(read.limit) || is_bad_number(read.timeout) {
        return Upstream;
    }
    if read.token != Token::None {
        return page(read);
    }
    let limited = matches!(read.limit, "1" | "2" | "500");
    let single = read.fields.named && read.collection.one_scope;
    match (read.version, read.matched) {
        // L1, L2: the upstream compares with etcd's revision; Weir forwards consistent lists.
        (Version::Unset | Version::Empty, "") => Either,
        (Version::Unset | Version::Empty, _) => Upstream,
        (Version::Future | Version::Bad(_), _) => Upstream,
        (_, matched) if !matches!(matched, "" | "Exact" | "NotOlderThan") => Upstream,
        // L3: the limit has no effect.
        (Version::Zero, "" | "NotOlderThan") => Cache,
        (Version::Zero, _) => Upstream,
        // L14
        (Version::ZeroZero, _) => Either,
        // §1.6.2: etcd's latest state of a single object.
        (_, "") if limited && single => Either,
        // L5
        (_, "") if limited => exact(read),
        // L4, L6, L7
        (Version::Old | Version::Recent | Version::Current, "" | "NotOlderThan") => Cache,
        // §1.6.2: a single object at that revision of etcd.
        (_, "Exact") if single => Either,
        // L8
        _ => exact(read),
    }
}

/// The state at one exact resourceVersion: from the history, as far as it goes.
fn exact(read: &ReadRequest) -> Expect {
    match read.version {
        Version::Recent | Version::Current if read.collection.touched => Cache,
        _ => Either,
    }
}

/// L9 to L12.
fn page(read: &ReadRequest) -> Expect {
    if !matches!(read.version, Version::Unset | Version::Empty | Version::Zero)
        || !read.matched.is_empty()
    {
        return Upstream;
    }
    match read.token {
        Token::Minted(version) | Token::FromEtcd(version) => {
            // A collection whose first page was its last has no token.
            let is_cached = read.collection.touched && version != Version::Old;
            if is_cached { Cache } else { Either }
        }
        // The revision of another resource, or the present one: provable in some states of the
        // cache.
        Token::Foreign | Token::Latest | Token::None => Either,
        Token::Bad(_) => Upstream,
    }
}

/// §1.4, §1.5, §1.6.4 and §6.
fn watch(read: &ReadRequest, way: WatchForm) -> Expect {
    if is_bad_number(read.limit) || is_bad_number(read.timeout) || read.timeout == "-1" {
        return Upstream;
    }
    // Without a match it has no effect, and clients rarely send it.
    if read.token != Token::None {
        return Either;
    }
    if way == WatchForm::Path {
        return plain_path(read);
    }
    let reads = match read.initial {
        "" => None,
        "0" | "false" | "FALSE" => Some(false),
        _ => Some(true),
    };
    match (reads, read.matched) {
        (None, "") | (Some(_), "NotOlderThan") => {}
        // 422
        _ => return Upstream,
    }
    match (read.version, reads) {
        // Consistent starts of watches.
        (Version::Unset | Version::Empty, None | Some(true)) => Cache,
        // "From now", by etcd's clock.
        (Version::Unset | Version::Empty, Some(false)) => Either,
        (Version::Zero, _) => Cache,
        (Version::Bad(_), _) => Upstream,
        (Version::ZeroZero, _) => Either,
        (Version::Old | Version::Recent | Version::Current, Some(true)) => Cache,
        // An ERROR event after three seconds, or silence.
        (Version::Future, _) => Either,
        // The history began before it, or the upstream answers.
        (Version::Recent | Version::Current, _) if read.collection.touched => Cache,
        (Version::Old | Version::Recent | Version::Current, _) => Either,
    }
}

/// §6.2: without the parameter the options are validated as a list's, nothing is defaulted, and no
/// bookmark ends the state.
fn plain_path(read: &ReadRequest) -> Expect {
    if !read.initial.is_empty() || !matches!(read.matched, "") {
        return Either;
    }
    match read.version {
        Version::Unset | Version::Empty | Version::Zero => Cache,
        Version::Recent | Version::Current if read.collection.touched => Cache,
        Version::Bad(_) => Upstream,
        _ => Either,
    }
}

/// §1.2: values that Go's ParseInt rejects.
fn is_bad_number(text: &str) -> bool {
    !text.is_empty() && text.parse::<i64>().is_err()
}
