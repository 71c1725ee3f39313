//! Objects in protobuf, whose strings have any bytes. The API server decides which of them it
//! takes.

/// A kind of objects with the places where its strings can be odd.
pub(super) struct Kind {
    api_version: &'static str,
    kind: &'static str,
    pub(super) plural: &'static str,
    /// Whether the API server takes names that are not UTF-8.
    pub(super) has_odd_names: bool,
    /// Field selectors of the kind, percent-encoded.
    pub(super) selectors: &'static [&'static str],
}

const RBAC: &str = "rbac.authorization.k8s.io/v1";

pub(super) const KINDS: [Kind; 6] = [
    kind("v1", "ConfigMap", "configmaps", false, &[]),
    kind("v1", "Secret", "secrets", false, &["type%3DOpaque", "type!%3DOpaque"]),
    kind(
        "v1",
        "Pod",
        "pods",
        false,
        &["spec.schedulerName%3Ddefault-scheduler", "spec.schedulerName!%3Ddefault-scheduler"],
    ),
    kind("apps/v1", "ControllerRevision", "controllerrevisions", false, &[]),
    kind(RBAC, "Role", "roles", true, &[]),
    kind(RBAC, "RoleBinding", "rolebindings", true, &[]),
];

const fn kind(
    api_version: &'static str,
    kind: &'static str,
    plural: &'static str,
    has_odd_names: bool,
    selectors: &'static [&'static str],
) -> Kind {
    Kind { api_version, kind, plural, has_odd_names, selectors }
}

impl Kind {
    fn group_version(&self) -> String {
        match self.api_version.split_once('/') {
            None => format!("/api/{}", self.api_version),
            Some(_) => format!("/apis/{}", self.api_version),
        }
    }

    /// Returns the path of all of its objects.
    pub(super) fn collection_path(&self) -> String {
        format!("{}/{}", self.group_version(), self.plural)
    }

    /// Returns the path of those of a namespace.
    pub(super) fn namespace_path(&self, namespace: &str) -> String {
        format!("{}/namespaces/{namespace}/{}", self.group_version(), self.plural)
    }

    /// Returns an object with further fields of its metadata, and of its own.
    pub(super) fn object(
        &self,
        name: &[u8],
        namespace: &str,
        metadata: &[u8],
        fields: &[u8],
    ) -> Vec<u8> {
        let names = [field(1, name), field(3, namespace.as_bytes())].concat();
        let object = [field(1, &[&names, metadata].concat()), fields.to_vec()].concat();
        let types = [field(1, self.api_version.as_bytes()), field(2, self.kind.as_bytes())];
        [b"k8s\0".to_vec(), field(1, &types.concat()), field(2, &object)].concat()
    }
}

/// Returns a random object. Its name is returned if a path can have it as it is.
pub(super) fn odd_object(
    random: &mut fastrand::Rng,
    number: usize,
) -> (&'static Kind, Option<String>, Vec<u8>) {
    let kind = random.choice(&KINDS).unwrap();
    let plain = format!("odd-{number}");
    let is_odd = random.u8(..3) == 0 && (kind.has_odd_names || random.u8(..8) == 0);
    let name = if is_odd { [plain.as_bytes(), &text(random)].concat() } else { plain.into() };
    let mut metadata = Vec::new();
    for key in ["a", "b"] {
        metadata.extend(field(12, &pair(key.as_bytes(), &text(random))));
    }
    if random.u8(..8) == 0 {
        metadata.extend(field(11, &pair(b"a", &text(random))));
    }
    if random.bool() {
        metadata.extend(field(17, &managed(random)));
    }
    if random.bool() {
        let owner = [(1, text(random)), (3, text(random)), (4, text(random)), (5, b"v1".into())];
        metadata.extend(field(13, &owner.map(|(number, text)| field(number, &text)).concat()));
    }
    let fields = own_fields(random, kind);
    let body = kind.object(&name, super::ODD, &metadata, &fields);
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
    let name = name.iter().all(is_plain).then(|| String::from_utf8(name).unwrap());
    (kind, name, body)
}

fn own_fields(random: &mut fastrand::Rng, kind: &Kind) -> Vec<u8> {
    match kind.plural {
        "configmaps" => field(2, &pair(b"k", &text(random))),
        "secrets" => {
            let data = field(2, &pair(b"k", &text(random)));
            let kind = if random.bool() { b"Opaque".to_vec() } else { text(random) };
            [data, field(3, &kind)].concat()
        }
        "pods" => {
            let container = [field(1, b"c"), field(2, &[b"image".to_vec(), text(random)].concat())];
            let mut spec = field(2, &container.concat());
            if random.bool() {
                spec.extend(field(19, &text(random)));
            }
            // The names of its attributes are in the managed fields that the API server writes.
            let attributes = (0..3).map(|_| field(4, &pair(&text(random), &text(random))));
            let csi = [field(1, b"driver"), attributes.collect::<Vec<_>>().concat()].concat();
            spec.extend(field(1, &[field(1, b"v"), field(2, &field(28, &csi))].concat()));
            field(2, &spec)
        }
        "controllerrevisions" => {
            let data = [&br#"{"a":""#[..], &in_json(random), br#"","b":{"c":[[[1e3]]]}}"#].concat();
            [field(2, &field(1, &data)), vec![0x18, 1]].concat()
        }
        "roles" => {
            let rule = [(1, text(random)), (2, text(random)), (3, text(random)), (4, text(random))];
            field(2, &rule.map(|(number, text)| field(number, &text)).concat())
        }
        _ => {
            let subject = [field(1, b"User"), field(2, b"rbac.authorization.k8s.io")].concat();
            let subject = [subject, field(3, &text(random))].concat();
            let role = [field(1, b"rbac.authorization.k8s.io"), field(2, b"Role")].concat();
            [field(2, &subject), field(3, &[role, field(3, &text(random))].concat())].concat()
        }
    }
}

/// Returns a manager's entry. Its fields are JSON that the API server copies.
fn managed(random: &mut fastrand::Rng) -> Vec<u8> {
    let fields = [&br#"{"f:data":{"f:"#[..], &in_json(random), br#"":{}}}"#].concat();
    let entry = [(1, text(random)), (2, b"Update".into()), (3, b"v1".into())];
    let entry = entry.map(|(number, text)| field(number, &text)).concat();
    [entry, field(6, b"FieldsV1"), field(7, &field(1, &fields))].concat()
}

/// Returns the content of a string of JSON.
fn in_json(random: &mut fastrand::Rng) -> Vec<u8> {
    const ESCAPES: [&[u8]; 4] = [br"\ud800", br"\udc00\ud83d", br"\u0000", br#"\\\"\/"#];
    match random.bool() {
        true => random.choice(ESCAPES).unwrap().to_vec(),
        false => {
            let mut text = text(random);
            text.retain(|byte| *byte >= b' ' && !b"\"\\".contains(byte));
            text
        }
    }
}

/// Returns some bytes, of which some are text.
fn text(random: &mut fastrand::Rng) -> Vec<u8> {
    const PARTS: [&[u8]; 16] = [
        b"a",
        b"plain",
        b"\xff",
        b"\xfe\xff",
        b"\xc0\x80",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xe2\x82",
        "\u{fffd}".as_bytes(),
        "ü\u{2028}😀".as_bytes(),
        b"\0",
        b"\n",
        b"\"\\",
        b"<>&",
        b":?#",
        b"{}[],",
    ];
    let parts = random.usize(1..4);
    (0..parts).flat_map(|_| random.choice(PARTS).unwrap().to_vec()).collect()
}

fn pair(key: &[u8], value: &[u8]) -> Vec<u8> {
    [field(1, key), field(2, value)].concat()
}

/// Returns a field of bytes.
fn field(number: u8, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    varint(&mut out, usize::from(number) << 3 | 2);
    varint(&mut out, value.len());
    [out, value.to_vec()].concat()
}

fn varint(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
