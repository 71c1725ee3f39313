//! Frames of watch events of config maps, and items of their list, as copies of one with other
//! digits: they cost the source little, so that Weir is what is measured.

use memchr::memmem;
use weir::api::resource::Representation;
use weir::codec::protobuf::wire::push_head;
use weir::codec::protobuf::{UNKNOWN_RAW_TAG, UNKNOWN_TAIL, envelope_head};

/// The kinds of copies.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Added,
    Modified,
    Deleted,
    /// An item of a list.
    Item,
    /// The bookmark that ends the initial events.
    InitialEnd,
}

const KINDS: [(Kind, &str); 5] = [
    (Kind::Added, "ADDED"),
    (Kind::Modified, "MODIFIED"),
    (Kind::Deleted, "DELETED"),
    (Kind::Item, ""),
    (Kind::InitialEnd, "BOOKMARK"),
];

/// The numbers in which the copies differ.
#[derive(Clone, Copy)]
pub(crate) struct Numbers {
    /// The number in the object's name and uid.
    pub(crate) object: u64,
    pub(crate) resource_version: u64,
    /// When the event was sent, in microseconds from any start.
    pub(crate) micros: u64,
}

/// All kinds in one representation.
pub(crate) struct Frames {
    templates: [Template; 5],
    representation: Representation,
}

/// Which number a place has.
type Digits = fn(Numbers) -> u64;

/// One frame, and where its digits are.
struct Template {
    bytes: Vec<u8>,
    /// The places have an offset, a length, and one of the [`Numbers`].
    places: Vec<(usize, usize, Digits)>,
}

impl Frames {
    /// With objects of about `bytes` bytes.
    pub(crate) fn new(representation: Representation, bytes: usize) -> Self {
        let text = "x".repeat(bytes.saturating_sub(OTHER_BYTES));
        let templates = KINDS.map(|(kind, name)| {
            Template::new(match representation {
                Representation::Protobuf => protobuf(name, &text, kind),
                _ => json(name, &text, kind),
            })
        });
        Self { templates, representation }
    }

    /// Returns what is before and after the items of a list of `objects` objects that has no
    /// remaining ones, or after no items if some remain.
    pub(crate) fn list_ends(
        &self,
        objects: usize,
        resource_version: u64,
        remaining: usize,
    ) -> (Vec<u8>, &'static [u8]) {
        if self.representation != Representation::Protobuf {
            let rest = format!(
                r#""resourceVersion":"{resource_version}","remainingItemCount":{remaining}"#
            );
            let head = r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"#;
            return (format!(r#"{head}{rest}}},"items":["#).into_bytes(), b"]}");
        }
        let item =
            self.templates.get(Kind::Item as usize).map_or(0, |template| template.bytes.len());
        let version = field(0x12, resource_version.to_string().as_bytes());
        let mut metadata = version;
        // A number is written as a length is.
        push_head(&mut metadata, 0x20, remaining);
        let metadata = field(0x0a, &metadata);
        let mut head = envelope_head("v1", "ConfigMapList");
        push_head(&mut head, UNKNOWN_RAW_TAG, metadata.len() + objects * item);
        ([head, metadata].concat(), UNKNOWN_TAIL)
    }

    /// Appends a copy.
    pub(crate) fn push(&self, chunk: &mut Vec<u8>, kind: Kind, numbers: Numbers) {
        let Some(template) = self.templates.get(kind as usize) else { return };
        let begin = chunk.len();
        chunk.extend_from_slice(&template.bytes);
        for (offset, length, of) in &template.places {
            let at = begin + offset;
            let digits = chunk.get_mut(at..at + length).expect("the offset is inside the frame");
            let mut number = of(numbers);
            for digit in digits.iter_mut().rev() {
                *digit = b'0' + (number % 10) as u8;
                number /= 10;
            }
        }
    }
}

impl Template {
    fn new(bytes: Vec<u8>) -> Self {
        let values: [(&str, Digits); 4] = [
            (NAME, |numbers| numbers.object),
            (UID, |numbers| numbers.object),
            (VERSION, |numbers| numbers.resource_version),
            (MICROS, |numbers| numbers.micros),
        ];
        let place = |(digits, of): (&str, Digits)| {
            Some((memmem::find(&bytes, digits.as_bytes())?, digits.len(), of))
        };
        let places = values.into_iter().filter_map(place).collect();
        Self { bytes, places }
    }
}

fn json(name: &str, text: &str, kind: Kind) -> Vec<u8> {
    let named = format!(r#""name":"cm-{NAME}","namespace":"default","uid":"{UID_HEAD}{UID}""#);
    let rest = format!(r#""resourceVersion":"{VERSION}","creationTimestamp":"{CREATED}""#);
    let data = format!(r#""data":{{"text":"{CHANGED}{MICROS}{text}"}}"#);
    let object = match kind {
        Kind::InitialEnd => {
            format!(r#""metadata":{{{rest},"annotations":{{"{INITIAL_END}":"true"}}}}}}"#)
        }
        _ => format!(r#""metadata":{{{named},{rest}}},{data}}}"#),
    };
    match kind {
        Kind::Item => format!("{{{object},").into_bytes(),
        _ => {
            let head = r#"{"kind":"ConfigMap","apiVersion":"v1","#;
            format!("{{\"type\":\"{name}\",\"object\":{head}{object}}}\n").into_bytes()
        }
    }
}

fn protobuf(name: &str, text: &str, kind: Kind) -> Vec<u8> {
    let metadata = [
        field(0x0a, format!("cm-{NAME}").as_bytes()),
        field(0x1a, b"default"),
        field(0x2a, format!("{UID_HEAD}{UID}").as_bytes()),
        field(0x32, VERSION.as_bytes()),
        field(0x42, CREATED_SECONDS),
    ];
    let value = format!("{CHANGED}{MICROS}{text}");
    let pair = [field(0x0a, b"text"), field(0x12, value.as_bytes())].concat();
    let raw = match kind {
        Kind::InitialEnd => {
            let pair = [field(0x0a, INITIAL_END.as_bytes()), field(0x12, b"true")].concat();
            let version = field(0x32, VERSION.as_bytes());
            field(0x0a, &[version, field(0x62, &pair)].concat())
        }
        _ => [field(0x0a, &metadata.concat()), field(0x12, &pair)].concat(),
    };
    if let Kind::Item = kind {
        return field(0x12, &raw);
    }
    let object =
        [&envelope_head("v1", "ConfigMap")[..], &field(UNKNOWN_RAW_TAG, &raw), UNKNOWN_TAIL];
    let event =
        [field(0x0a, name.as_bytes()), field(0x12, &field(0x0a, &object.concat()))].concat();
    let length = u32::try_from(event.len()).expect("it is small").to_be_bytes();
    [&length[..], &event].concat()
}

fn field(tag: u8, value: &[u8]) -> Vec<u8> {
    let mut field = Vec::new();
    push_head(&mut field, tag, value.len());
    [field, value.to_vec()].concat()
}

/// The bytes of an object beside its text.
const OTHER_BYTES: usize = 200;
const NAME: &str = "4242424";
const UID_HEAD: &str = "0da57b8d-9045-4653-aa5e-";
const UID: &str = "616161616161";
const VERSION: &str = "818181818";
const CREATED: &str = "2026-01-01T00:00:00Z";
const CREATED_SECONDS: &[u8] = &[0x08, 0x80, 0xf2, 0xd6, 0xca, 0x6];
const INITIAL_END: &str = "k8s.io/initial-events-end";
/// Before the time of an event.
pub(crate) const CHANGED: &str = "changed=";
pub(crate) const MICROS: &str = "7373737373737373";
