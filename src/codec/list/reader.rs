//! Parses a list in JSON, also while it arrives, wherever its chunks may be cut, without buffering
//! all of it.
//!
//! The reader itself only finds where items begin and end, by counting brackets and strings. Each
//! item is then parsed completely ([`ingest::any_list_item`]), and the bytes around the items are
//! parsed as a list without items. So no byte is accepted that was not parsed.

use super::envelope;
use super::page::{ListError, ListPage};
use crate::ingest::{self, IngestError, Ingested};
use weir_api::resource::{ApiResource, Representation};

/// Parses a list while it arrives.
#[derive(Debug)]
pub struct ListReader {
    item_bytes_max: usize,
    position: Position,
    value: ValueScanner,
    /// The bytes of the list without its items.
    envelope: Vec<u8>,
    /// The beginning of an incomplete item.
    partial: Vec<u8>,
}

/// The position of the next byte in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    /// Before the items or after them.
    Envelope,
    /// After the bracket that opens the items.
    First,
    /// Within an item.
    Item,
    /// After an item.
    After,
    /// After a comma.
    Next,
}

/// The nesting of the next byte within a JSON value.
#[derive(Debug, Default)]
struct ValueScanner {
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl ListReader {
    /// Creates a reader that rejects items of more than `item_bytes_max`.
    pub fn new(item_bytes_max: usize) -> Self {
        Self {
            item_bytes_max,
            position: Position::Envelope,
            value: ValueScanner::default(),
            envelope: Vec::new(),
            partial: Vec::new(),
        }
    }

    /// Reads the next chunk and passes each object that it completes to `take`.
    pub fn push(
        &mut self,
        mut chunk: &[u8],
        resource: &ApiResource,
        representation: Representation,
        mut take: impl FnMut(Ingested),
    ) -> Result<(), ListError> {
        let mut item =
            |bytes: &[u8]| ingest::any_list_item(bytes, resource, representation).map(&mut take);
        while !chunk.is_empty() {
            chunk = match self.position {
                Position::Envelope => self.read_envelope(chunk)?,
                Position::Item => self.read_item(chunk, &mut item)?,
                Position::First | Position::After | Position::Next => self.read_separator(chunk)?,
            };
        }
        Ok(())
    }

    /// Returns whether the bytes that were read are the beginning of a list, or none.
    pub fn is_within(&self) -> bool {
        self.position != Position::Envelope
            || self.value.depth > 0
            || self.value.in_string
            || self.envelope.is_empty()
    }

    /// Ends the list and returns its metadata, without objects. Returns an error if the list is
    /// incomplete.
    pub fn finish(&self) -> Result<ListPage, ListError> {
        if self.position != Position::Envelope {
            return Err(IngestError::Malformed.into());
        }
        Ok(envelope::parse(&self.envelope)?)
    }

    /// Buffers the bytes around the items, up to the first item.
    fn read_envelope<'a>(&mut self, chunk: &'a [u8]) -> Result<&'a [u8], ListError> {
        let mut rest = chunk;
        while let Some((byte, after)) = rest.split_first() {
            rest = after;
            self.envelope.push(*byte);
            self.value.take(*byte);
            let opens = *byte == b'[' && self.value.depth == 2 && !self.value.in_string;
            if opens && opens_items(&self.envelope) {
                self.position = Position::First;
                return Ok(rest);
            }
        }
        if self.envelope.len() > ENVELOPE_BYTES_MAX {
            return Err(ListError::TooLong(ENVELOPE_BYTES_MAX));
        }
        Ok(&[])
    }

    /// Reads one byte between two items.
    fn read_separator<'a>(&mut self, chunk: &'a [u8]) -> Result<&'a [u8], ListError> {
        let Some((byte, rest)) = chunk.split_first() else { return Ok(chunk) };
        self.position = match (byte, self.position) {
            (b' ' | b'\n' | b'\r' | b'\t', same) => same,
            (b'{', Position::First | Position::Next) => {
                self.value = ValueScanner::default();
                self.position = Position::Item;
                return Ok(chunk);
            }
            (b',', Position::After) => Position::Next,
            (b']', Position::First | Position::After) => {
                self.envelope.push(b']');
                self.value = ValueScanner { depth: 1, ..ValueScanner::default() };
                Position::Envelope
            }
            _ => return Err(IngestError::Malformed.into()),
        };
        Ok(rest)
    }

    fn read_item<'a>(
        &mut self,
        chunk: &'a [u8],
        take: &mut impl FnMut(&[u8]) -> Result<(), IngestError>,
    ) -> Result<&'a [u8], ListError> {
        let end = self.value.end(chunk);
        let (tail, rest) = chunk.split_at(end.unwrap_or(chunk.len()));
        if self.partial.len() + tail.len() > self.item_bytes_max {
            return Err(ListError::TooLong(self.item_bytes_max));
        }
        if end.is_none() || !self.partial.is_empty() {
            self.partial.extend_from_slice(tail);
        }
        if end.is_some() {
            let whole = if self.partial.is_empty() { tail } else { &self.partial };
            take(whole)?;
            self.partial.clear();
            self.position = Position::After;
        }
        Ok(rest)
    }
}

impl ValueScanner {
    fn take(&mut self, byte: u8) {
        match (self.in_string, byte) {
            (true, _) if self.escaped => self.escaped = false,
            (true, b'\\') => self.escaped = true,
            (_, b'"') => self.in_string = !self.in_string,
            (false, b'{' | b'[') => self.depth += 1,
            // The parser of the item finds a bracket too many.
            (false, b'}' | b']') => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }

    /// Returns how many of `bytes` belong to the value, if it ends in them.
    fn end(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut rest = bytes;
        while let Some((byte, mut after)) = rest.split_first() {
            if self.in_string && !self.escaped {
                // Most bytes of an object are in strings.
                (_, after) = rest.split_at_checked(memchr::memchr2(b'"', b'\\', rest)?)?;
                let (wanted, beyond) = after.split_first()?;
                self.take(*wanted);
                after = beyond;
            } else {
                self.take(*byte);
            }
            if self.depth == 0 {
                return Some(bytes.len() - after.len());
            }
            rest = after;
        }
        None
    }
}

/// Whether the bracket at the end opens the value of a key `items`. A key that is written with an
/// escape and only ends in `items` is rejected when the envelope is parsed.
fn opens_items(envelope: &[u8]) -> bool {
    let key = envelope.strip_suffix(b"[").map(<[u8]>::trim_ascii_end);
    let key = key.and_then(|key| key.strip_suffix(b":")).map(<[u8]>::trim_ascii_end);
    key.is_some_and(|key| key.ends_with(br#""items""#))
}

/// The limit for the part around the items: kind, version, resourceVersion and perhaps a token.
const ENVELOPE_BYTES_MAX: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::parse::parse_json;
    use super::*;
    use crate::json::tests::{config_maps, widgets};
    use crate::list::tests::WIDGET_LIST;
    use crate::object::Object;

    /// Reads a text that is cut at these positions. Returns the objects and the page.
    fn read(
        text: &str,
        cuts: &[usize],
        resource: &ApiResource,
    ) -> Result<(Vec<Object>, ListPage), ListError> {
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut % (text.len() + 1)).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let (mut reader, mut objects) = (ListReader::new(1024), Vec::new());
        for cut in cuts.windows(2) {
            let chunk = &text.as_bytes()[cut[0]..cut[1]];
            reader.push(chunk, resource, Representation::Json, |read| match read {
                Ingested::Object(object) => objects.push(object),
                Ingested::Unreadable(object) => panic!("{object:?} can be read"),
            })?;
        }
        reader.finish().map(|page| (objects, page))
    }

    const LIST: &str = concat!(
        r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"232","continue":"t"},"items":["#,
        r#"{"metadata":{"name":"a","namespace":"n","resourceVersion":"9"},"data":{"k":"v]}\"[{\\"}},"#,
        r#"{"metadata":{"name":"b","namespace":"n","resourceVersion":"10"},"items":[[{}],{"items":[]}]}]}"#,
        "\n"
    );

    #[test]
    fn a_built_in_list_is_read() {
        let (objects, page) = read(LIST, &[], &config_maps()).unwrap();
        assert_eq!((page.resource_version.0, &*page.continue_token), (232, "t"));
        assert_eq!(
            objects[0].body(),
            br#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"n","resourceVersion":"9"},"data":{"k":"v]}\"[{\\"}}"#
        );
        assert_eq!(objects[1].key.name(), "b");
    }

    #[test]
    fn a_custom_list_has_its_metadata_at_the_end() {
        let (objects, page) = read(WIDGET_LIST, &[], &widgets()).unwrap();
        assert_eq!((objects.len(), page.resource_version.0, &*page.continue_token), (1, 262, ""));
    }

    #[test]
    fn an_empty_list_is_read() {
        for items in ["[]", "null", "[ ]", "\n[\n]\n"] {
            let text = format!(r#"{{"metadata":{{"resourceVersion":"7"}},"items" : {items}}}"#);
            let (objects, page) = read(&text, &[], &config_maps()).unwrap();
            assert_eq!((objects.len(), page.resource_version.0), (0, 7), "{text}");
        }
    }

    #[test]
    fn malformed_lists_are_rejected() {
        let one = r#"{"metadata":{"name":"a","namespace":"n","resourceVersion":"9"}}"#;
        let list =
            |items: &str| format!(r#"{{"metadata":{{"resourceVersion":"7"}},"items":[{items}]}}"#);
        read(&list(&format!(" {one} , {one}\n")), &[], &config_maps()).unwrap();
        for text in [
            list(&format!("{one}{one}")),
            list(&format!("{one},")),
            list(&format!(",{one}")),
            list(&format!("{one},null")),
            list(&format!("[{one}]")),
            list("{]"),
            list(&one.replace("}}", "}]")),
            list("1"),
            list(one).replace("]}", "]"),
            list(one).replace("]}", "]}}"),
            list(one).replace("]}", ""),
            list(one).replace("]}", r#","items":[]}"#),
            list(one).replace("]}", r#"],"items":[]}"#),
            list(one).replace("]}", r#"],"more":[]}"#),
            list(one).replace("items", r#"i\u0074ems"#),
            list(one).replace("\"items", r#""\"items"#),
            format!("[{one}]"),
            "<html>".to_owned(),
            String::new(),
        ] {
            let refused = read(&text, &[], &config_maps()).unwrap_err();
            assert_eq!(refused, IngestError::Malformed.into(), "{text}");
        }
        let unversioned = list(one).replace("\"7\"", "\"x\"");
        let refused = read(&unversioned, &[], &config_maps()).unwrap_err();
        assert_eq!(refused, IngestError::ResourceVersion.into());
    }

    #[test]
    fn buffers_are_bounded() {
        let long = "x".repeat(1024);
        let item = format!(r#"{{"items":[{{"k":"{long}"#);
        assert_eq!(read(&item, &[], &config_maps()).unwrap_err(), ListError::TooLong(1024));
        let envelope = format!(r#"{{"kind":"{}"#, "x".repeat(ENVELOPE_BYTES_MAX));
        let refused = read(&envelope, &[], &config_maps()).unwrap_err();
        assert_eq!(refused, ListError::TooLong(ENVELOPE_BYTES_MAX));
    }

    proptest! {
        #[test]
        fn a_list_in_chunks_reads_like_the_whole(
            values in prop::collection::vec(r#"[a-z"\\\[\]{},: é]{0,12}"#, 0..6),
            cuts in prop::collection::vec(any::<usize>(), 0..12),
        ) {
            let items: Vec<_> = values
                .iter()
                .enumerate()
                .map(|(number, value)| {
                    let meta = serde_json::json!({"name": format!("n{number}"), "namespace": "n", "resourceVersion": "5"});
                    serde_json::json!({"metadata": meta, "data": {value: [value, {"k": value}]}}).to_string()
                })
                .collect();
            let text = format!(r#"{{"metadata":{{"resourceVersion":"7"}},"items":[{}]}}"#, items.join(","));
            let whole = parse_json(text.as_bytes(), &config_maps(), Representation::Json).unwrap();
            let (objects, page) = read(&text, &cuts, &config_maps()).unwrap();
            prop_assert_eq!(page.resource_version, whole.resource_version);
            let bodies = |objects: &[Object]| objects.iter().map(|object| object.body().to_vec()).collect::<Vec<_>>();
            prop_assert_eq!(bodies(&objects), bodies(&whole.objects));
        }
    }
}
