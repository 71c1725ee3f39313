//! Selectors by the grammar of docs/semantics.md §7, escaped for a query; with each, whether the
//! upstream accepts it. The upstream writes the error for the others, so these are never answered
//! from a cache.

/// A label selector.
#[derive(Debug)]
pub(crate) struct Labels {
    pub(crate) text: &'static str,
    pub(crate) good: bool,
}

/// A field selector.
#[derive(Debug)]
pub(crate) struct Fields {
    pub(crate) text: &'static str,
    pub(crate) good: bool,
    /// Whether it requires one legal `metadata.name` (docs/semantics.md §6.1).
    pub(crate) named: bool,
}

pub(crate) static NO_LABELS: Labels = Labels { text: "", good: true };
pub(crate) static NO_FIELDS: Fields = good("");

pub(crate) const fn good(text: &'static str) -> Fields {
    Fields { text, good: true, named: false }
}

pub(crate) const fn one(text: &'static str) -> Fields {
    Fields { text, good: true, named: true }
}

pub(crate) const fn bad(text: &'static str) -> Fields {
    Fields { text, good: false, named: false }
}

const fn yes(text: &'static str) -> Labels {
    Labels { text, good: true }
}

const fn no(text: &'static str) -> Labels {
    Labels { text, good: false }
}

/// §7.3.
pub(crate) static LABELS: [Labels; 44] = [
    yes("app%3Dx"),
    yes("app%3D%3Dx"),
    yes("app!%3Dx"),
    yes("app"),
    yes("!app"),
    yes("app%20in%20(x,z)"),
    yes("app+in+(x,+z)"),
    yes("app%20notin%20(x)"),
    yes("app%09in%0A(x)"),
    yes("n%3E4"),
    yes("n%3C4"),
    // Its value must be a label value too.
    no("n+%3E+-5"),
    yes("app%3Dx,n%3D5"),
    yes("app%3Dx,app!%3Dz,n"),
    yes("empty%3D"),
    yes("empty%3D%3D"),
    yes("empty!%3D"),
    yes("empty+in+()"),
    yes("empty+in+(,)"),
    yes("in+in+(in)"),
    yes("notin+notin+(notin)"),
    yes("example.com/x%3Dy"),
    yes("%20app%3Dx%20"),
    no("a%3Db%3Dc"),
    no("!a%3Db"),
    no("a%3Db+c"),
    no("a,,b"),
    no("a,"),
    no(",a"),
    no("(a)"),
    no("%3D"),
    no("a+in+(b"),
    no("x+in+("),
    no("a+in+b"),
    no("a%3D!b"),
    no("!"),
    no("a+gt+5"),
    no("a%3Eb"),
    no("-a%3Db"),
    no("/x%3Dy"),
    no("a/b/c%3Dd"),
    no("A_b/c%3Dd"),
    no("a%3D-b"),
    no("x%3Daaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"),
];

/// §7.1 and §6.1, for every kind.
pub(crate) static FIELDS: [Fields; 22] = [
    one("metadata.name%3Dx"),
    one("metadata.name%3D%3Dx"),
    one("metadata.name%3Dnope"),
    one("metadata.name%3Dx,metadata.name%3Dz"),
    one("metadata.name%3Dx,metadata.name!%3Dx"),
    one("metadata.name%3Dx,"),
    good("metadata.name!%3Dx"),
    good("metadata.name%3D"),
    good("metadata.name%3Da%2Fb"),
    good("metadata.name%3D.."),
    good("metadata.name%3Da%25b"),
    good(","),
    good("metadata.name!%3Dx%5C%3Dy%5C%5C%5C,"),
    bad("metadata.name"),
    bad("metadata.name%3Dx%3Dy"),
    bad("metadata.name%3Dx%5Cq"),
    bad("metadata.name%3Dx%5C"),
    bad("%20metadata.name%3Dx"),
    bad("spec.nonsense%3D1"),
    bad("metadata.labels%3Dx"),
    bad("metadata.name+in+(x)"),
    bad("%3Dx"),
];
