//! Writes objects and lists in JSON into a buffer with the same bytes as Go's encoder.

use crate::api::json_string::push_string;

/// Writes the fields of an object in the order of the calls. Empty values are left out, as with
/// Go's `omitempty`.
pub(super) struct ObjectWriter<'a> {
    out: &'a mut Vec<u8>,
    empty: bool,
}

impl<'a> ObjectWriter<'a> {
    /// Begins an object.
    pub(super) fn open(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, empty: true }
    }

    /// Writes the key of a field; the caller writes its value. The key must need no escapes;
    /// [`Self::escaped_key`] takes others.
    pub(super) fn key(&mut self, key: &str) -> &mut Vec<u8> {
        self.comma();
        self.out.push(b'"');
        self.out.extend_from_slice(key.as_bytes());
        self.out.extend_from_slice(b"\":");
        self.out
    }

    /// Writes a key that may need escapes.
    pub(super) fn escaped_key(&mut self, key: &str) -> &mut Vec<u8> {
        self.comma();
        push_string(self.out, key.as_bytes());
        self.out.push(b':');
        self.out
    }

    /// Writes a field with a string, unless it is empty.
    pub(super) fn string(&mut self, key: &str, value: &[u8]) {
        if !value.is_empty() {
            push_string(self.key(key), value);
        }
    }

    /// Writes a field with a list of strings, unless it is empty.
    pub(super) fn strings(&mut self, key: &str, values: &[String]) {
        if !values.is_empty() {
            push_strings(self.key(key), values);
        }
    }

    /// Ends the object.
    pub(super) fn close(self) {
        self.out.push(b'}');
    }

    fn comma(&mut self) {
        if !self.empty {
            self.out.push(b',');
        }
        self.empty = false;
    }
}

/// Appends an array of strings.
pub(super) fn push_strings(out: &mut Vec<u8>, values: &[String]) {
    out.push(b'[');
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        push_string(out, value.as_bytes());
    }
    out.push(b']');
}
