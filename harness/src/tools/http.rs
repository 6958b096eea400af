//! The one door to servers that speak HTTP: curl, with the user's own proxies and certificates. What comes back is hostile
//! until it is read; nothing is retried.

use std::time::Duration;

use super::process::{Invocation, ProcessError};

/// An answer of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The status, such as 200 or 404.
    pub status: u16,
    /// What came with it.
    pub body: Vec<u8>,
}

/// How much of an answer is taken, in bytes.
const MOST_BYTES: usize = 8 << 20;

/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Asks for a document. Headers are given to curl through its input, so that no list of processes shows a token.
///
/// # Errors
/// When no answer came; an answer that says no is none of them.
pub fn get(address: &str, headers: &[(&str, &str)]) -> Result<Answer, Box<ProcessError>> {
    let protocol = if address.starts_with("https://") { "=https" } else { "=http" };
    let lines: String = headers.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
    let asked = Invocation::new("curl")
        // No redirect is followed: the headers were meant for this server.
        .args(["--silent", "--show-error", "--max-redirs", "0", "--proto", protocol])
        .args([
            "--max-time",
            &ANSWER_TIMEOUT.as_secs().to_string(),
            "--max-filesize",
            &MOST_BYTES.to_string(),
        ])
        .args(["--header", "@-", "--write-out", "\n%{http_code}", "--"])
        .arg(address)
        .stdin(lines)
        .timeout(ANSWER_TIMEOUT + Duration::from_secs(5))
        .run_ok()
        .map_err(Box::new)?;
    let bytes = asked.stdout_bytes;
    let end = bytes.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
    let status = std::str::from_utf8(&bytes[end..]).ok().and_then(|text| text.trim().parse().ok());
    Ok(Answer { status: status.unwrap_or(0), body: bytes[..end].to_vec() })
}

/// The bytes at an `https` address, redirects followed.
///
/// # Errors
/// When they cannot be had.
pub fn download(address: &str, timeout: Duration) -> Result<Vec<u8>, Box<ProcessError>> {
    let curl = Invocation::new("curl")
        .args(["--fail", "--silent", "--show-error", "--location", "--proto", "=https", "--"])
        .arg(address)
        .timeout(timeout);
    Ok(curl.run_ok().map_err(Box::new)?.stdout_bytes)
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead as _, BufReader, Write as _},
        net::TcpListener,
    };

    use super::*;

    /// Answers one request with a text; gives the request's lines.
    fn serve(answer: &'static str) -> (String, std::thread::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}/x", listener.local_addr().unwrap());
        let served = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let lines = lines.map(Result::unwrap).take_while(|line| !line.is_empty()).collect();
            stream.write_all(answer.as_bytes()).unwrap();
            lines
        });
        (address, served)
    }

    #[test]
    fn status_and_body_come_back_and_headers_go_out() {
        let (address, served) =
            serve("HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\nConnection: close\r\n\r\nno\n\n");
        let answer = get(&address, &[("Authorization", "Bearer secret")]).unwrap();
        assert_eq!(answer, Answer { status: 404, body: b"no\n\n".to_vec() });
        let lines = served.join().unwrap();
        assert!(lines.iter().any(|line| line == "Authorization: Bearer secret"), "{lines:?}");
    }

    #[test]
    fn a_redirect_takes_no_header_elsewhere() {
        let (address, served) = serve(
            "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        );
        assert_eq!(get(&address, &[]).unwrap().status, 302);
        served.join().unwrap();
    }
}
