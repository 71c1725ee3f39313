//! The parts of a body that show a cache's own progress: the resourceVersion of a list, of
//! bookmarks, and within a token. The resourceVersions of objects are kept.

/// Returns the body without them.
pub(crate) fn masked(body: &[u8]) -> Vec<u8> {
    if let Some(rest) = body.strip_prefix(b"k8s\0") {
        return protobuf(rest);
    }
    if body.first() == Some(&0) {
        return frames(body);
    }
    if matches!(body.first(), Some(0x81 | 0x82)) {
        return messages(body);
    }
    let text = String::from_utf8_lossy(body);
    if text.starts_with("{\"type\":") {
        return stream(&text).into_bytes();
    }
    json(&text).into_bytes()
}

/// The list's metadata stands before its items, or after them in custom resources.
fn json(text: &str) -> String {
    let head = text.get(..text.len().min(64)).unwrap_or(text);
    if !text.contains("\"items\":") && !text.contains("\"rows\":") {
        return text.to_owned();
    }
    let first = head.trim_start_matches(['{', '\n', ' ']).starts_with("\"kind\"");
    let key = "\"metadata\":";
    let at = if first { text.find(key) } else { text.rfind(key) };
    let Some((before, rest)) = at.and_then(|at| text.split_at_checked(at + key.len())) else {
        return text.to_owned();
    };
    let end = rest.find('}').unwrap_or(rest.len());
    let (metadata, after) = rest.split_at_checked(end).unwrap_or((rest, ""));
    let metadata = without(&without(metadata, "\"resourceVersion\":"), "\"continue\":");
    format!("{before}{metadata}{after}")
}

/// Removes the string after a key; its presence, and whether it is empty, stay.
fn without(text: &str, key: &str) -> String {
    let Some((before, rest)) = text.split_once(key) else { return text.to_owned() };
    let Some((blank, rest)) = rest.split_once('"') else { return text.to_owned() };
    let Some((value, after)) = rest.split_once('"') else { return text.to_owned() };
    let mark = if value.is_empty() { "" } else { "..." };
    format!("{before}{key}{blank}\"{mark}\"{after}")
}

/// Frames of a watch: of a bookmark that ends the state, the kind and the version stay, since Weir
/// writes no other fields until it has seen a bookmark (docs/semantics.md §0.3); other bookmarks
/// are removed, because they come with progress.
fn stream(text: &str) -> String {
    let mut lines = Vec::new();
    for line in text.lines() {
        if !line.starts_with("{\"type\":\"BOOKMARK\"") {
            lines.push(line.to_owned());
        } else if line.contains("k8s.io/initial-events-end") {
            let head = line.split_once("\"metadata\":").map_or(line, |(head, _)| head);
            lines.push(head.to_owned());
        }
    }
    lines.join("\n")
}

/// Length-delimited frames; of the bookmark that ends the state, only its presence is kept.
fn frames(mut body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some((length, rest)) = body.split_first_chunk::<4>() {
        let length = u32::from_be_bytes(*length) as usize;
        let Some((frame, after)) = rest.split_at_checked(length) else { break };
        body = after;
        let contains = |word: &[u8]| frame.windows(word.len()).any(|part| part == word);
        if !frame.starts_with(b"\x0a\x08BOOKMARK") {
            out.extend_from_slice(frame);
        } else if contains(b"k8s.io/initial-events-end") {
            out.extend_from_slice(b"BOOKMARK");
        }
    }
    out.extend_from_slice(body);
    out
}

/// Messages of a WebSocket, each one frame without a mask (RFC 6455 §5.2); the length of a message
/// is removed.
fn messages(mut body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some(([first, short], rest)) = body.split_first_chunk::<2>() {
        let (length, rest) = match (short, rest) {
            (126, [a, b, rest @ ..]) => (usize::from(u16::from_be_bytes([*a, *b])), rest),
            (127, [0, 0, 0, 0, a, b, c, d, rest @ ..]) => {
                (u32::from_be_bytes([*a, *b, *c, *d]) as usize, rest)
            }
            _ => (usize::from(*short), rest),
        };
        let Some((message, after)) = rest.split_at_checked(length) else { break };
        body = after;
        if message.starts_with(b"{\"type\":") {
            out.extend(stream(&String::from_utf8_lossy(message)).into_bytes());
        } else {
            out.push(*first);
            out.extend_from_slice(message);
        }
    }
    out.extend_from_slice(body);
    out
}

/// `Unknown{TypeMeta, raw}` of a list: removes its ListMeta. Other messages are kept.
fn protobuf(unknown: &[u8]) -> Vec<u8> {
    let mut rest = unknown;
    let mut out = Vec::new();
    let (mut list, mut beta) = (false, false);
    while let Some((tag, value, after)) = field(rest) {
        match tag {
            0x0a => {
                list = value.ends_with(b"List");
                beta = value.windows(BETA.len()).any(|word| word == BETA);
            }
            0x12 if list => {
                // ListMeta: field 1 of the list, but in `meta.k8s.io/v1beta1` the last field,
                // number 2.
                let mut members = value;
                while let Some((tag, member, more)) = field(members) {
                    if tag != if beta { 0x12 } else { 0x0a } {
                        out.extend_from_slice(member);
                    }
                    members = more;
                }
                rest = after;
                continue;
            }
            _ => {}
        }
        out.push(tag);
        out.extend_from_slice(value);
        rest = after;
    }
    out.extend_from_slice(rest);
    out
}

const BETA: &[u8] = b"meta.k8s.io/v1beta1";

/// Returns a length-delimited field: its tag, its bytes, and the rest.
pub(crate) fn field(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = bytes.split_first()?;
    let (mut length, mut shift, mut rest) = (0_usize, 0, rest);
    loop {
        let (byte, after) = rest.split_first()?;
        rest = after;
        length |= usize::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            break;
        }
        if shift > 28 {
            return None;
        }
    }
    if tag & 7 != 2 {
        return None;
    }
    let (value, after) = rest.split_at_checked(length)?;
    Some((*tag, value, after))
}
