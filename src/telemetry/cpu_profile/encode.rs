//! Samples as a message of pprof's `profile.proto`
//! (<https://github.com/google/pprof/blob/main/proto/profile.proto>), compressed as its tools
//! expect it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{self, Write};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;

use super::samples::{Code, Samples};

/// Returns the samples as a gzip member.
pub(super) fn gzip(samples: &Samples) -> io::Result<Bytes> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&profile(samples).encode_to_vec())?;
    Ok(encoder.finish()?.into())
}

fn profile(samples: &Samples) -> Profile {
    let mut tables = Tables::new();
    let kind = |tables: &mut Tables, kind: &str, unit: &str| ValueType {
        r#type: tables.text(kind),
        unit: tables.text(unit),
    };
    let count = kind(&mut tables, "samples", "count");
    let cpu = kind(&mut tables, "cpu", "nanoseconds");
    let period = 1_000_000_000 / i64::from(samples.frequency.max(1));
    let thread = tables.text("thread");
    let mut profile = Profile {
        sample_type: vec![count, cpu.clone()],
        time_nanos: samples.start_ns,
        duration_nanos: i64::try_from(samples.length.as_nanos()).unwrap_or(i64::MAX),
        period_type: Some(cpu),
        period,
        ..Profile::default()
    };
    for (id, mapping) in (1..).zip(&samples.mappings) {
        profile.mapping.push(Mapping {
            id,
            memory_start: mapping.start,
            memory_limit: mapping.end,
            file_offset: mapping.file_offset,
            filename: tables.text(&mapping.file),
            ..Mapping::default()
        });
    }
    for stack in &samples.stacks {
        let mut location_id = Vec::with_capacity(stack.addresses.len());
        for (depth, address) in stack.addresses.iter().enumerate() {
            let code = samples.code.get(address).map(Vec::as_slice).unwrap_or_default();
            location_id.push(tables.location(&mut profile, *address, depth > 0, code));
        }
        let label = Label { key: thread, str: tables.text(&stack.thread) };
        let value = vec![stack.count, stack.count.saturating_mul(period)];
        profile.sample.push(Sample { location_id, value, label: vec![label] });
    }
    profile.string_table = tables.texts;
    profile
}

/// The numbered parts of a profile.
#[derive(Default)]
struct Tables {
    texts: Vec<String>,
    text_numbers: BTreeMap<String, i64>,
    functions: BTreeMap<(i64, i64), u64>,
    locations: BTreeMap<u64, u64>,
}

impl Tables {
    fn new() -> Self {
        let mut tables = Self::default();
        // The format requires that the first is empty.
        tables.text("");
        tables
    }

    /// Returns the number of a text.
    fn text(&mut self, text: &str) -> i64 {
        if let Some(number) = self.text_numbers.get(text) {
            return *number;
        }
        let number = i64::try_from(self.texts.len()).unwrap_or_default();
        self.texts.push(text.to_owned());
        self.text_numbers.insert(text.to_owned(), number);
        number
    }

    /// Returns the number of a place in the code. A call's address is that of the instruction
    /// after it, which may belong to another line.
    fn location(
        &mut self,
        profile: &mut Profile,
        address: u64,
        is_call: bool,
        code: &[Code],
    ) -> u64 {
        let address = address.saturating_sub(u64::from(is_call));
        if let Some(id) = self.locations.get(&address) {
            return *id;
        }
        let mut line = Vec::with_capacity(code.len());
        for code in code {
            let function_id = self.function(&mut profile.function, code);
            line.push(Line { function_id, line: code.line });
        }
        let is_inside = |mapping: &&mut Mapping| {
            (mapping.memory_start..mapping.memory_limit).contains(&address)
        };
        let mut mapping_id = 0;
        if let Some(mapping) = profile.mapping.iter_mut().find(is_inside) {
            mapping_id = mapping.id;
            // Tools look for the symbols of the others.
            mapping.has_functions |= !line.is_empty();
        }
        let id = profile.location.len() as u64 + 1;
        profile.location.push(Location { id, mapping_id, address, line });
        self.locations.insert(address, id);
        id
    }

    fn function(&mut self, functions: &mut Vec<Function>, code: &Code) -> u64 {
        let (name, filename) = (self.text(&code.function), self.text(&code.file));
        match self.functions.entry((name, filename)) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                let id = functions.len() as u64 + 1;
                functions.push(Function { id, name, system_name: name, filename });
                *new.insert(id)
            }
        }
    }
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    pub(super) sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    pub(super) mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    pub(super) string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    time_nanos: i64,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    period: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ValueType {
    #[prost(int64, tag = "1")]
    r#type: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    label: Vec<Label>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Label {
    #[prost(int64, tag = "1")]
    key: i64,
    #[prost(int64, tag = "2")]
    str: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Mapping {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    memory_start: u64,
    #[prost(uint64, tag = "3")]
    memory_limit: u64,
    #[prost(uint64, tag = "4")]
    file_offset: u64,
    #[prost(int64, tag = "5")]
    filename: i64,
    #[prost(bool, tag = "7")]
    has_functions: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    mapping_id: u64,
    #[prost(uint64, tag = "3")]
    address: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
    #[prost(int64, tag = "2")]
    line: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "3")]
    system_name: i64,
    #[prost(int64, tag = "4")]
    filename: i64,
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Read;
    use std::time::Duration;

    use flate2::read::GzDecoder;

    use super::*;
    use crate::telemetry::cpu_profile::mappings;
    use crate::telemetry::cpu_profile::samples::Stack;

    pub(in crate::telemetry::cpu_profile) fn parse(gzip: &[u8]) -> Profile {
        let mut bytes = Vec::new();
        GzDecoder::new(gzip).read_to_end(&mut bytes).unwrap();
        Profile::decode(&*bytes).unwrap()
    }

    #[test]
    fn samples_refer_to_what_is_numbered_once() {
        let code = |function: &str, line| Code {
            function: function.to_owned(),
            file: "src/main.rs".to_owned(),
            line,
        };
        let stack = |addresses: &[u64], count| Stack {
            addresses: addresses.to_vec(),
            thread: "tokio-1".to_owned(),
            count,
        };
        let samples = Samples {
            start_ns: 5,
            length: Duration::from_secs(2),
            frequency: 100,
            stacks: vec![stack(&[0x1010, 0x1021], 3), stack(&[0x9000, 0x1021], 1)],
            code: BTreeMap::from([
                (0x1010, vec![code("inlined", 7), code("outer", 9)]),
                (0x1021, vec![code("outer", 12)]),
            ]),
            mappings: mappings::executable("1000-2000 r-xp 00000400 fe:00 1 /usr/bin/weir\n"),
        };
        let profile = parse(&gzip(&samples).unwrap());
        let text = |number: i64| &*profile.string_table[usize::try_from(number).unwrap()];
        assert_eq!(text(0), "");
        assert_eq!((profile.period, profile.duration_nanos), (10_000_000, 2_000_000_000));
        let types: Vec<_> =
            profile.sample_type.iter().map(|it| (text(it.r#type), text(it.unit))).collect();
        assert_eq!(types, [("samples", "count"), ("cpu", "nanoseconds")]);
        let [mapping] = &*profile.mapping else { panic!("{:?}", profile.mapping) };
        assert_eq!((text(mapping.filename), mapping.file_offset), ("/usr/bin/weir", 0x400));
        let [first, second] = &*profile.sample else { panic!("{:?}", profile.sample) };
        assert_eq!(first.value, [3, 30_000_000]);
        assert_eq!((text(first.label[0].key), text(first.label[0].str)), ("thread", "tokio-1"));
        assert_eq!((&*first.location_id, &*second.location_id), (&[1, 2][..], &[3, 2][..]));
        let location = |id: usize| &profile.location[id - 1];
        let lines = |id| {
            let name = |id: u64| text(profile.function[usize::try_from(id).unwrap() - 1].name);
            let lines = location(id).line.iter();
            lines.map(|line| (name(line.function_id), line.line)).collect::<Vec<_>>()
        };
        assert_eq!(lines(1), [("inlined", 7), ("outer", 9)]);
        assert_eq!(lines(2), [("outer", 12)]);
        assert_eq!(lines(3), []);
        assert_eq!(profile.function.len(), 2);
        assert_eq!((location(1).address, location(1).mapping_id), (0x1010, 1));
        assert_eq!((location(2).address, location(2).mapping_id), (0x1020, 1), "of the call");
        assert_eq!((location(3).address, location(3).mapping_id), (0x9000, 0));
        assert!(mapping.has_functions);
    }
}
