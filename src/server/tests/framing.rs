//! Requests that two readers could parse differently (request smuggling) are refused, or forwarded
//! once as Weir parsed them, and never served from the cache.

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::harness::{SOON, Settings, Weir, http2_on, whole};
use super::recorder::{Recorded, Recorder};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Starts a Weir with a filled cache and a recorder as its upstream.
async fn recorded() -> (Recorder, Weir) {
    let recorder = Recorder::start(OK).await;
    let address = format!("http://{}", recorder.address);
    let weir = Weir::before(Settings::default(), address, None).await;
    (recorder, weir)
}

/// Sends bytes, and reads until Weir closes the connection.
async fn raw(weir: &Weir, bytes: &[u8]) -> String {
    let mut tcp = weir.tcp().await;
    tcp.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    let read = tokio::time::timeout(SOON, tcp.read_to_end(&mut answer)).await;
    assert!(read.is_ok(), "kept open: {}", String::from_utf8_lossy(bytes));
    String::from_utf8_lossy(&answer).into_owned()
}

/// Returns the requests that arrived before a plain request on the same pool. That request must
/// arrive whole and last.
async fn requests_before_a_plain_one(recorder: &Recorder, weir: &Weir) -> Vec<Recorded> {
    assert_eq!(weir.get("/next").await.code, 200);
    let mut seen = recorder.whole();
    let next = seen.pop().unwrap();
    assert_eq!((next.line(), next.body.as_str()), ("GET /next HTTP/1.1", ""), "{seen:?}");
    seen
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "a table")]
async fn ambiguous_framing_is_refused_and_the_connection_closed() {
    let post = "POST /x HTTP/1.1\r\nHost: localhost\r\n";
    let chunks = "\r\n5\r\nhello\r\n0\r\n\r\n";
    let mut rows: Vec<String> = Vec::new();
    for coding in [
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: identity, chunked",
        "Transfer-Encoding: chunked, chunked",
        "Transfer-Encoding: chunked;q=1",
        "Transfer-Encoding: \"chunked\"",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: x",
        "Transfer-Encoding : chunked",
        "Transfer-Encoding: \x0bchunked",
        "X: a\rb\r\nTransfer-Encoding: chunked",
        "X: a\0b\r\nTransfer-Encoding: chunked",
        "X\0: a\r\nTransfer-Encoding: chunked",
        "no colon\r\nTransfer-Encoding: chunked",
    ] {
        rows.push(format!("{post}{coding}\r\n{chunks}"));
    }
    for length in [
        "+5",
        "-5",
        "0x5",
        "5 5",
        "5, 5",
        "5,6",
        "",
        "five",
        "99999999999999999999",
        "18446744073709551616",
        "5\r\nContent-Length: 6",
        "0\r\nContent-Length: 5",
    ] {
        rows.push(format!("{post}Content-Length: {length}\r\n\r\nhello"));
    }
    rows.push(format!("{post}Content-Length : 5\r\n\r\nhello"));
    for chunks in [
        "+5\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "ffffffffffffffff1\r\nhello\r\n0\r\n\r\n",
        "10000000000000005\r\nhello\r\n0\r\n\r\n",
        "5\nhello\n0\n\n",
        "5\r\nhelloX\r\n0\r\n\r\n",
        "\r\nhello\r\n0\r\n\r\n",
    ] {
        rows.push(format!("{post}Transfer-Encoding: chunked\r\n\r\n{chunks}"));
    }
    rows.push(format!(
        "POST /x HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n{chunks}"
    ));
    for line in [
        "GET /x",
        "GET  /x HTTP/1.1",
        "GET /x HTTP/2.0",
        "GET /x HTTP/1.2",
        "GET /x y HTTP/1.1",
        "GET /x\0 HTTP/1.1",
        "GET /x\t HTTP/1.1",
        "GET /%zz HTTP/1.1",
        "GET /api/v1/pods/a% HTTP/1.1",
        "GET /api/v1/pods/a%2 HTTP/1.1",
        "GET http://localhost/%zz HTTP/1.1",
        "GET localhost:80 HTTP/1.1",
        "GET x HTTP/1.1",
        "GET ?x HTTP/1.1",
        "GET #x HTTP/1.1",
        "GET http:///x HTTP/1.1",
        "GE(T /x HTTP/1.1",
    ] {
        rows.push(format!("{line}\r\nHost: localhost\r\n\r\n"));
    }
    rows.push(
        "GET /x HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            .to_owned(),
    );

    let (recorder, weir) = recorded().await;
    for row in rows {
        // A second request follows, which must not be read.
        let bytes = format!("{row}GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let answer = raw(&weir, bytes.as_bytes()).await;
        // As in Go's server: 501 for a coding, and 505 for a version, that it does not have.
        let codes = ["HTTP/1.1 400 ", "HTTP/1.1 501 ", "HTTP/1.1 505 "];
        assert!(codes.iter().any(|code| answer.starts_with(code)), "{row:?}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{row:?}: {answer}");
    }
    let seen = requests_before_a_plain_one(&recorder, &weir).await;
    assert!(seen.is_empty(), "{seen:?}");
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "a table")]
async fn unambiguous_requests_are_forwarded_once_and_never_cached() {
    let (recorder, weir) = recorded().await;
    let _feed = weir.fill([("one".to_owned(), 5)]);
    let list = "/api/v1/configmaps?resourceVersion=0";
    assert_eq!(weir.get(list).await.header("x-weir-cache"), "hit");
    let host = recorder.address.to_string();
    let end = "Host: localhost\r\nConnection: close\r\n";
    let chunked = "Transfer-Encoding: chunked\r\n";
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let hello = "\r\n5\r\nhello\r\n0\r\n\r\n";
    // The request, the request line that must arrive, and the body.
    let rows = [
        // `Connection: close` is absent: Weir itself must close a connection after a request with
        // two lengths.
        (
            format!("POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n{chunked}{hello}"),
            "POST /a",
            "hello",
        ),
        (
            format!("POST /a HTTP/1.1\r\nHost: localhost\r\n{chunked}Content-Length: 4\r\n{hello}"),
            "POST /a",
            "hello",
        ),
        (
            format!(
                "POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 46\r\n{chunked}\r\n0\r\n\r\n"
            ),
            "POST /a",
            "",
        ),
        (
            format!("POST /a HTTP/1.1\r\n{end}{chunked}\r\n5;x=y\r\nhello\r\n0\r\n\r\n"),
            "POST /a",
            "hello",
        ),
        (
            format!("POST /a HTTP/1.1\r\n{end}Transfer-Encoding: CHUNKED\r\n{hello}"),
            "POST /a",
            "hello",
        ),
        (
            format!("POST /a HTTP/1.1\r\n{end}Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello"),
            "POST /a",
            "hello",
        ),
        (format!("POST /a HTTP/1.1\r\n{end}Content-Length: 005\r\n\r\nhello"), "POST /a", "hello"),
        (
            "POST /a HTTP/1.1\nHost: localhost\nConnection: close\nContent-Length: 2\n\nhi"
                .to_owned(),
            "POST /a",
            "hi",
        ),
        (
            format!("GET {list} HTTP/1.1\r\n{end}Content-Length: 5\r\n\r\nhello"),
            "GET /api/v1/configmaps?resourceVersion=0",
            "hello",
        ),
        (
            format!("GET {list} HTTP/1.1\r\n{end}{chunked}\r\n0\r\n\r\n"),
            "GET /api/v1/configmaps?resourceVersion=0",
            "",
        ),
        (
            format!("GET {list} HTTP/1.1\r\n{end}{chunked}{hello}"),
            "GET /api/v1/configmaps?resourceVersion=0",
            "hello",
        ),
        (
            format!("get {list} HTTP/1.1\r\n{end}\r\n"),
            "get /api/v1/configmaps?resourceVersion=0",
            "",
        ),
        (format!("GET http://localhost/version HTTP/1.1\r\n{end}\r\n"), "GET /version", ""),
        (format!("GET http://127.0.0.1:1/version HTTP/1.1\r\n{end}\r\n"), "GET /version", ""),
        (format!("GET /version#/../x HTTP/1.1\r\n{end}\r\n"), "GET /version%23/../x", ""),
        (format!("OPTIONS * HTTP/1.1\r\n{end}\r\n"), "OPTIONS *", ""),
        (
            "POST /a HTTP/1.0\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nhi".to_owned(),
            "POST /a",
            "hi",
        ),
    ];
    let mut complaints = Vec::new();
    for (row, line, body) in rows {
        let before = recorder.whole().len();
        let answer = raw(&weir, format!("{row}{smuggled}").as_bytes()).await;
        let once = answer.matches("HTTP/1.").count() == 1 && answer.contains(" 200 ");
        if !once || answer.contains("x-weir-cache: hit") {
            complaints.push(format!("{row:?} was answered {answer}"));
        }
        let seen = requests_before_a_plain_one(&recorder, &weir).await;
        let line = format!("{line} HTTP/1.1");
        let as_meant = matches!(&seen[before..], [one]
            if one.line() == line && one.body == body && one.values("host") == [host.as_str()]);
        if !as_meant {
            complaints.push(format!("{row:?} arrived as {:?}", &seen[before..]));
        }
    }
    assert!(complaints.is_empty(), "{complaints:#?}");
    for path in [
        "//api/v1/configmaps",
        "/api//v1/configmaps",
        "/api/v1/./configmaps",
        "/api/v1/../v1/configmaps",
        "/api/v1/%2e%2e/v1/configmaps",
        "/api/v1/configmaps%2f",
        "/api/v1%2fconfigmaps",
        "/api/v1/config%6daps",
        "/api/v1/configmaps;x",
        "/api/v1;x/configmaps",
        "/api/v1/configmaps%00",
        "/api/v1/configmaps%23x",
        "/api/v1/configmaps%3fx",
        "/api\\v1/configmaps",
    ] {
        let before = recorder.whole().len();
        let line = format!("GET {path}?resourceVersion=0 HTTP/1.1");
        let answer = raw(&weir, format!("{line}\r\n{end}\r\n").as_bytes()).await;
        assert!(answer.contains("x-weir-cache: forward"), "{path}: {answer}");
        let seen = requests_before_a_plain_one(&recorder, &weir).await;
        assert_eq!(seen[before..].iter().map(Recorded::line).collect::<Vec<_>>(), [line]);
    }
}

/// Go's server refuses such a path on HTTP/2 by a reset, after which Weir could not distinguish it
/// from a broken upstream. A bad escape in a query is only an odd parameter.
#[tokio::test]
async fn a_path_with_a_bad_escape_is_a_bad_request_on_either_protocol() {
    let (recorder, weir) = recorded().await;
    let mut two = http2_on(weir.tcp().await).await;
    for path in ["/%zz", "/api/v1/namespaces/a%2/pods", "/version%"] {
        let one = weir.get(path).await;
        let request = Request::get(format!("http://localhost{path}"));
        let other =
            two.send_request(request.body(Full::<Bytes>::default()).unwrap()).await.unwrap();
        for answer in [one, whole(other).await] {
            assert_eq!(answer.code, 400, "{path}");
            assert!(answer.text().contains("percent sign"), "{}", answer.text());
        }
    }
    assert_eq!(weir.get("/version?x=%zz").await.code, 200);
    let seen = requests_before_a_plain_one(&recorder, &weir).await;
    assert_eq!(
        seen.iter().map(Recorded::line).collect::<Vec<_>>(),
        ["GET /version?x=%zz HTTP/1.1"]
    );
}

/// Encodes a field in HPACK's simplest form: literal, not indexed, not compressed.
fn field((name, value): &(&str, &str)) -> Vec<u8> {
    let mut bytes = vec![0, u8::try_from(name.len()).unwrap()];
    bytes.extend(name.as_bytes());
    bytes.push(u8::try_from(value.len()).unwrap());
    bytes.extend(value.as_bytes());
    bytes
}

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags, 0, 0, 0, stream], payload].concat()
}

/// Sends one request with a body over HTTP/2, and waits until its stream or the connection ends.
/// Returns the type of the frame that ended it.
async fn http2(weir: &Weir, fields: &[(&str, &str)], body: Option<&str>) -> Option<u8> {
    let mut tcp = weir.tcp().await;
    let fields: Vec<u8> = fields.iter().flat_map(field).collect();
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(4, 0, 0, &[]));
    bytes.extend(frame(1, if body.is_some() { 4 } else { 5 }, 1, &fields));
    if let Some(body) = body {
        bytes.extend(frame(0, 1, 1, body.as_bytes()));
    }
    tcp.write_all(&bytes).await.unwrap();
    let read = async {
        loop {
            let mut head = [0; 9];
            tcp.read_exact(&mut head).await.ok()?;
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; length as usize];
            tcp.read_exact(&mut payload).await.ok()?;
            let (kind, flags, stream) = (head[3], head[4], head[8]);
            // The frame is RST_STREAM, GOAWAY, or the end of the response.
            if kind == 3 || kind == 7 || (stream == 1 && kind < 2 && flags & 1 == 1) {
                return Some(kind);
            }
        }
    };
    tokio::time::timeout(SOON, read).await.expect("neither the stream nor the connection ended")
}

#[tokio::test]
async fn ambiguous_http2_requests_never_reach_the_upstream() {
    let method = (":method", "POST");
    let scheme = (":scheme", "http");
    let path = (":path", "/a");
    let authority = (":authority", "localhost");
    let plain = [method, scheme, path, authority];
    let with = |more: &[(&'static str, &'static str)]| [&plain, more].concat();
    let at = |path: &'static str| vec![method, scheme, (":path", path), authority];
    let rows = [
        (at("/a\r\nx: y"), None),
        (at("/a\0"), None),
        (at(""), None),
        (at("a"), None),
        (at("?a"), None),
        (at("http://localhost/a"), None),
        (vec![method, scheme, authority], None),
        (vec![method, path, authority], None),
        (vec![scheme, path, authority], None),
        (with(&[(":path", "/b")]), None),
        (with(&[(":method", "GET")]), None),
        (with(&[(":authority", "127.0.0.1")]), None),
        (with(&[(":status", "200")]), None),
        (with(&[(":other", "x")]), None),
        (vec![method, scheme, ("x", "y"), path, authority], None),
        (with(&[("X-Upper", "y")]), None),
        (with(&[("x y", "z")]), None),
        (with(&[("", "z")]), None),
        (with(&[("x", "y\r\nz: a")]), None),
        (with(&[("x", "y\0")]), None),
        (with(&[("x:", "y")]), None),
        (
            with(&[("transfer-encoding", "chunked")]),
            Some("0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n"),
        ),
        (with(&[("connection", "close")]), None),
        (with(&[("upgrade", "websocket")]), None),
        (with(&[("keep-alive", "1")]), None),
        (with(&[("proxy-connection", "close")]), None),
        (with(&[("content-length", "5")]), None),
        (with(&[("content-length", "5")]), Some("hell")),
        (with(&[("content-length", "5")]), Some("hello, and more")),
        (with(&[("content-length", "0")]), Some("GET /smuggled HTTP/1.1\r\n\r\n")),
        (with(&[("content-length", "+5")]), Some("hello")),
        (with(&[("content-length", "5"), ("content-length", "6")]), Some("hello")),
        (with(&[("content-length", "5, 5")]), Some("hello")),
        (vec![method, scheme, path, ("host", "localhost"), ("host", "127.0.0.1")], None),
        (vec![method, scheme, path, (":authority", "local host")], None),
    ];
    let (recorder, weir) = recorded().await;
    for (fields, body) in &rows {
        http2(&weir, fields, *body).await;
        let seen = requests_before_a_plain_one(&recorder, &weir).await;
        let others: Vec<_> = seen.iter().filter(|one| one.line() != "GET /next HTTP/1.1").collect();
        assert!(others.is_empty(), "{fields:?}: {others:?}");
    }
    // A plain request arrives under the upstream's own name, whichever of the two headers the
    // client used.
    for more in [&[][..], &[("host", "127.0.0.1")], &[("content-length", "5")]] {
        let before = recorder.whole().len();
        assert_eq!(http2(&weir, &with(more), Some("hello")).await, Some(0));
        let seen = requests_before_a_plain_one(&recorder, &weir).await;
        let [one] = &seen[before..] else { panic!("{more:?}: {:?}", &seen[before..]) };
        assert_eq!((one.line(), one.body.as_str()), ("POST /a HTTP/1.1", "hello"));
        assert_eq!(one.values("host"), [recorder.address.to_string()]);
    }
}

/// As in Go's server: a line that begins with a blank goes on with the value of the line before it.
#[tokio::test]
async fn folded_fields_are_joined() {
    let (recorder, weir) = recorded().await;
    let post = "POST /x HTTP/1.1\r\nHost: localhost\r\n";
    let chunks = "\r\n5\r\nhello\r\n0\r\n\r\n";
    let end = "GET /end HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let chunked = format!("{post}Transfer-Encoding: \r\n\tchunked\r\n{chunks}{end}");
    assert_eq!(raw(&weir, chunked.as_bytes()).await.matches("HTTP/1.1 200 ").count(), 2);
    // The coding is a part of another value, so that no body belongs to the request.
    let hidden = format!("{post}X: y \r\n  Transfer-Encoding: chunked\r\n{chunks}{end}");
    let answer = raw(&weir, hidden.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(answer.matches("HTTP/1.1 400 ").count(), 1, "{answer}");
    let first = format!("GET /x HTTP/1.1\r\n Host: localhost\r\n\r\n{end}");
    assert!(raw(&weir, first.as_bytes()).await.starts_with("HTTP/1.1 400 "));
    let seen = requests_before_a_plain_one(&recorder, &weir).await;
    let lines: Vec<_> =
        seen.iter().map(|request| (request.line(), request.body.as_str())).collect();
    let expected =
        [("POST /x HTTP/1.1", "hello"), ("GET /end HTTP/1.1", ""), ("POST /x HTTP/1.1", "")];
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn an_unknown_expectation_gets_417() {
    let (recorder, weir) = recorded().await;
    for (fields, code) in [
        ("Expect: foo", 417),
        ("Expect: 100-continue-not", 417),
        ("Expect: foo\r\nExpect: 100-continue", 417),
        ("Expect:", 200),
        ("Expect: 100-Continue", 200),
        ("Expect: x, 100-continue", 200),
    ] {
        let head =
            format!("GET /x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}\r\n\r\n");
        let answer = raw(&weir, head.as_bytes()).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {code} ")), "{fields}: {answer}");
        assert_eq!(code == 417, answer.contains("\"kind\":\"Status\""), "{fields}: {answer}");
    }
    assert_eq!(requests_before_a_plain_one(&recorder, &weir).await.len(), 3);
}

/// Go's server sends a 100 when a handler reads the body.
#[tokio::test]
async fn a_client_gets_no_100_with_an_answer_that_needs_no_body() {
    let answer = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let upstream = tokio::spawn(async move {
        let (mut tcp, _) = listener.accept().await.unwrap();
        assert!(tcp.read(&mut [0; 4096]).await.unwrap() > 0);
        tcp.write_all(answer.as_bytes()).await.unwrap();
    });
    let weir = Weir::before(Settings::default(), address, None).await;
    let head = "POST /x HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n";
    let answer = raw(&weir, format!("{head}Content-Length: 5\r\n\r\n").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
    upstream.await.unwrap();
}

/// kube-apiserver limits only their bytes.
#[tokio::test]
async fn a_request_may_have_16384_header_fields() {
    let (recorder, weir) = recorded().await;
    // Two fields besides these.
    for (count, code) in [(99, 200), (1_100, 200), (16_382, 200), (16_383, 431)] {
        let fields = "X: y\r\n".repeat(count);
        let end = "Host: localhost\r\nConnection: close\r\n\r\n";
        let answer = raw(&weir, format!("GET /x HTTP/1.1\r\n{fields}{end}").as_bytes()).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {code} ")), "{count}: {answer}");
    }
    for request in requests_before_a_plain_one(&recorder, &weir).await {
        assert_eq!(request.line(), "GET /x HTTP/1.1");
    }
}
