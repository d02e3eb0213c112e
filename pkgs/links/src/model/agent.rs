//! Coarse user agents. They tell people from machines, but not one person from another.

/// The kind of program that followed a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Agent {
    /// No `User-Agent`.
    None = 0,
    /// Anything else.
    Other = 1,
    /// Crawlers, previews and monitors.
    Bot = 2,
    /// curl, wget, HTTP libraries.
    Tool = 3,
    /// Chrome and its derivatives.
    Chrome = 4,
    /// Firefox.
    Firefox = 5,
    /// Safari.
    Safari = 6,
    /// Edge.
    Edge = 7,
}

/// How much of a `User-Agent` is read, in bytes. Browsers send far less.
const LOOK_AT: usize = 512;

/// The longest word that is compared, in bytes.
const WORD: usize = 24;

impl Agent {
    /// The kind of program with this `User-Agent`. An empty one counts as none.
    ///
    /// Browsers name each other for compatibility, so the rarest name decides: Edge also calls itself Chrome, and
    /// Chrome calls itself Safari. Bots and tools win over all of them.
    pub fn classify(user_agent: &[u8]) -> Self {
        let shown = &user_agent[..user_agent.len().min(LOOK_AT)];
        let mut words = shown.split(|byte| !byte.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
        let Some(first) = words.next() else {
            return if user_agent.is_empty() { Self::None } else { Self::Other };
        };
        let start = if lower(first, is_tool) { Self::Tool } else { lower(first, kind) };
        words.map(|word| lower(word, kind)).fold(
            start,
            |best, found| {
                if found.rank() > best.rank() { found } else { best }
            },
        )
    }

    /// The name in the API and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Other => "other",
            Self::Bot => "bot",
            Self::Tool => "tool",
            Self::Chrome => "chrome",
            Self::Firefox => "firefox",
            Self::Safari => "safari",
            Self::Edge => "edge",
        }
    }

    /// The agent with this discriminant; [`Agent::Other`] if there is none.
    pub const fn from_u8(number: u8) -> Self {
        match number {
            0 => Self::None,
            2 => Self::Bot,
            3 => Self::Tool,
            4 => Self::Chrome,
            5 => Self::Firefox,
            6 => Self::Safari,
            7 => Self::Edge,
            _ => Self::Other,
        }
    }

    /// The rank among the kinds found in one `User-Agent`: the kind with the highest rank wins.
    const fn rank(self) -> u8 {
        match self {
            Self::None | Self::Other => 0,
            Self::Safari => 1,
            Self::Chrome => 2,
            Self::Firefox => 3,
            Self::Edge => 4,
            Self::Tool => 5,
            Self::Bot => 6,
        }
    }
}

/// Calls `ask` with the last [`WORD`] bytes of a word, in lower case.
fn lower<T>(word: &[u8], ask: fn(&[u8]) -> T) -> T {
    let end = &word[word.len().saturating_sub(WORD)..];
    let mut buffer = [0; WORD];
    let lower = &mut buffer[..end.len()];
    lower.copy_from_slice(end);
    lower.make_ascii_lowercase();
    ask(lower)
}

/// Whether a `User-Agent` that starts with this word belongs to a tool: `python-requests/2.32`, `Go-http-client/2.0`.
fn is_tool(word: &[u8]) -> bool {
    matches!(
        word,
        b"aiohttp"
            | b"apache"
            | b"axios"
            | b"curl"
            | b"go"
            | b"got"
            | b"guzzlehttp"
            | b"httpie"
            | b"insomnia"
            | b"java"
            | b"lftp"
            | b"libcurl"
            | b"libwww"
            | b"lwp"
            | b"node"
            | b"okhttp"
            | b"php"
            | b"postmanruntime"
            | b"python"
            | b"reqwest"
            | b"ruby"
            | b"undici"
            | b"ureq"
            | b"wget"
            | b"wget2"
            | b"xh"
    )
}

/// The kind that a word indicates at any position.
fn kind(word: &[u8]) -> Agent {
    match word {
        b"edg" | b"edga" | b"edgios" | b"edge" => Agent::Edge,
        b"firefox" | b"fxios" => Agent::Firefox,
        b"chrome" | b"chromium" | b"crios" => Agent::Chrome,
        b"safari" => Agent::Safari,
        b"powershell" | b"windowspowershell" => Agent::Tool,
        // A brand of telephones.
        b"cubot" => Agent::Other,
        b"archiver"
        | b"bots"
        | b"embedly"
        | b"facebookexternalhit"
        | b"facebookcatalog"
        | b"headlesschrome"
        | b"inspectiontool"
        | b"lighthouse"
        | b"mediapartners"
        | b"probe"
        | b"slurp"
        | b"vkshare"
        | b"whatsapp" => Agent::Bot,
        _ => {
            let suffixes: [&[u8]; 6] = [b"bot", b"crawler", b"crawl", b"spider", b"preview", b"monitor"];
            if suffixes.iter().any(|suffix| word.ends_with(suffix)) { Agent::Bot } else { Agent::Other }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_told_by_their_user_agent() {
        for (agent, texts) in [
            (Agent::None, &[""][..]),
            (
                Agent::Other,
                &[
                    "-",
                    "Lynx/2.9.0 libwww-FM/2.14",
                    "Dalvik/2.1.0 (Linux; U; Android 14; Pixel 8 Build/UQ1A)",
                    "Mozilla/5.0 (Windows NT 10.0; WOW64; Trident/7.0; rv:11.0) like Gecko",
                    "\u{fc}\u{fc}",
                ],
            ),
            (
                Agent::Bot,
                &[
                    "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
                    "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm) Chrome/116.0 Safari/537.36",
                    "Mozilla/5.0 (compatible; Baiduspider/2.0; +http://www.baidu.com/search/spider.html)",
                    "facebookexternalhit/1.1 (+http://www.facebook.com/externalhit_uatext.php)",
                    "Slackbot-LinkExpanding 1.0 (+https://api.slack.com/robots)",
                    "WhatsApp/2.23.20.0",
                    "Twitterbot/1.0",
                    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) HeadlessChrome/120.0 Safari/537.36",
                    "Mozilla/5.0+(compatible; UptimeRobot/2.0; http://www.uptimerobot.com/)",
                    "kube-probe/1.29",
                ],
            ),
            (
                Agent::Tool,
                &[
                    "curl/8.7.1",
                    "Wget/1.21.4",
                    "python-requests/2.32.3",
                    "Go-http-client/2.0",
                    "okhttp/4.12.0",
                    "Mozilla/5.0 (Windows NT; Windows NT 10.0; en-US) WindowsPowerShell/5.1.22621",
                ],
            ),
            (
                Agent::Chrome,
                &[
                    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36",
                    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) CriOS/126.0 Mobile/15E148 Safari/604.1",
                    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/125.0 Safari/537.36 OPR/111.0",
                    "Mozilla/5.0 (Linux; Android 9; CUBOT X19) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/96.0 Mobile Safari/537.36",
                ],
            ),
            (
                Agent::Firefox,
                &[
                    "Mozilla/5.0 (X11; Linux x86_64; rv:127.0) Gecko/20100101 Firefox/127.0",
                    "Mozilla/5.0 (iPhone; CPU iPhone OS 14_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) FxiOS/127.0 Mobile/15E148 Safari/605.1.15",
                ],
            ),
            (
                Agent::Safari,
                &[
                    "Mozilla/5.0 (Macintosh; Intel Mac OS X 14_5) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.5 Safari/605.1.15",
                    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.5 Mobile/15E148 Safari/604.1",
                ],
            ),
            (
                Agent::Edge,
                &[
                    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36 Edg/126.0.0.0",
                    "Mozilla/5.0 (Linux; Android 10; HD1913) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0 Mobile Safari/537.36 EdgA/124.0",
                ],
            ),
        ] {
            for text in texts {
                assert_eq!(Agent::classify(text.as_bytes()), agent, "{text}");
            }
        }
    }

    #[test]
    fn only_the_beginning_of_a_user_agent_is_looked_at() {
        let far = format!("{}Firefox/1", "x ".repeat(LOOK_AT / 2));
        assert_eq!(Agent::classify(far.as_bytes()), Agent::Other);
        let near = format!("{} Firefox/1", "x".repeat(LOOK_AT / 2));
        assert_eq!(Agent::classify(near.as_bytes()), Agent::Firefox);
    }

    #[test]
    fn numbers_lead_back_to_their_agent() {
        for number in 0..=u8::MAX {
            let agent = Agent::from_u8(number);
            let known = number <= Agent::Edge as u8;
            assert_eq!(agent as u8, if known { number } else { Agent::Other as u8 });
        }
    }
}
