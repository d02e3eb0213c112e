//! The SQL of lists and counts, which differs little between databases.

use crate::user::{Record, UserId};

use super::{Filter, Page, Position, Query, SortBy, SortKey, entry, tokenize};

/// The most bytes of users on a page of several. A page of larger ones ends early.
const MOST_BYTES: usize = 16 << 20;

/// The parts in which databases differ. `{}` stands for the parameter.
pub struct Dialect {
    /// The condition that a user has a tag.
    pub tagged: &'static str,
    /// The condition that a user has words.
    pub worded: &'static str,
    /// In the parameter of `worded`: the start of a word, for which `{}` stands here.
    pub beginning: &'static str,
    /// Likewise: joins conditions that all have to hold.
    pub and: &'static str,
    /// Likewise: joins conditions of which one has to hold.
    pub or: &'static str,
}

impl Dialect {
    /// The parameter of `worded`. Words contain only letters and digits, so nothing needs quoting within quotes.
    fn beginnings(&self, words: &[String]) -> String {
        let any = |word: &String| {
            let forms = tokenize::forms(word).into_iter().map(|form| self.beginning.replace("{}", &form));
            format!("({})", forms.collect::<Vec<_>>().join(self.or))
        };
        words.iter().map(any).collect::<Vec<_>>().join(self.and)
    }
}

/// A parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Times and numbers.
    Integer(i64),
    /// Texts.
    Text(String),
    /// Ids.
    Id(UserId),
}

/// SQL with `$1` and so on, and what these are.
pub struct Statement {
    /// The text.
    pub sql: String,
    /// The parameters, in order.
    pub values: Vec<Value>,
}

/// The number of users that meet a filter: one row with one number.
pub fn count(dialect: &Dialect, filter: &Filter) -> Statement {
    let mut statement = Statement { sql: "SELECT count(*) FROM users".into(), values: Vec::new() };
    statement.filter(dialect, filter);
    statement
}

/// A page: rows of id, version, body and sort key, one more than requested if there is a next page.
pub fn page(dialect: &Dialect, query: &Query) -> Statement {
    let key = column(query.sort.by);
    let (direction, beyond) = if query.sort.descending { ("DESC", "<") } else { ("ASC", ">") };
    let mut statement =
        Statement { sql: format!("SELECT id, version, body, {key} FROM users"), values: Vec::new() };
    let filtered = statement.filter(dialect, &query.filter);
    if let Some(Position { key: after, id }) = &query.after {
        let after = statement.parameter(match after {
            SortKey::Time(time) => Value::Integer(*time),
            SortKey::Text(text) => Value::Text(text.clone()),
        });
        let id = statement.parameter(Value::Id(*id));
        let word = if filtered { "AND" } else { "WHERE" };
        statement.sql.push_str(&format!(" {word} ({key}, id) {beyond} ({after}, {id})"));
    }
    let limit = statement.parameter(Value::Integer(i64::from(query.limit) + 1));
    statement.sql.push_str(&format!(" ORDER BY {key} {direction}, id {direction} LIMIT {limit}"));
    statement
}

/// The rows of [`page`], as far as the page needs them.
#[derive(Default)]
pub struct Rows {
    rows: Vec<(Record, SortKey)>,
    bytes: usize,
}

impl Rows {
    /// Adds the next row; false if no more are needed.
    pub fn add(&mut self, record: Record, key: SortKey) -> bool {
        self.bytes += record.body.len();
        self.rows.push((record, key));
        !self.are_large()
    }

    /// Whether the last row is one too many.
    fn are_large(&self) -> bool {
        self.bytes > MOST_BYTES && self.rows.len() > 1
    }
}

/// Makes the page from its rows.
pub fn paged(query: &Query, rows: Rows) -> Page {
    let fitting = if rows.are_large() { rows.rows.len() - 1 } else { usize::MAX };
    let (limit, mut rows) = (fitting.min(query.limit as usize), rows.rows);
    let more = rows.len() > limit;
    rows.truncate(limit);
    let last = if more { rows.last() } else { None };
    let next = last.map(|(record, key)| Position { key: key.clone(), id: record.id });
    Page { records: rows.into_iter().map(|(record, _)| record).collect(), next }
}

/// Whether users are sorted by a text.
pub fn is_text(by: SortBy) -> bool {
    matches!(by, SortBy::Name | SortBy::Email)
}

fn column(by: SortBy) -> &'static str {
    match by {
        SortBy::CreatedAt => "created_at",
        SortBy::UpdatedAt => "updated_at",
        SortBy::Name => "name",
        SortBy::Email => "email",
    }
}

impl Statement {
    fn parameter(&mut self, value: Value) -> String {
        self.values.push(value);
        format!("${}", self.values.len())
    }

    /// Appends the conditions; false if there are none.
    fn filter(&mut self, dialect: &Dialect, filter: &Filter) -> bool {
        // Each may consist of several, such as an email.
        let words = filter.words.iter().flat_map(|word| tokenize::split(word));
        let words: Vec<String> = words.take(Filter::WORDS).collect();
        // A search whose words contain no letters or digits finds nothing, rather than everything.
        let nobody = words.is_empty() && !filter.words.is_empty();
        let conditions = [
            ("status = {}", filter.status.map(|status| Value::Integer(entry::number(status).into()))),
            (dialect.tagged, filter.tag.as_ref().map(|tag| Value::Text(entry::tag(tag)))),
            ("email = {}", filter.email.as_ref().map(|email| Value::Text(entry::fold(email)))),
            ("created_at >= {}", filter.created_after.map(|time| Value::Integer(time.as_microsecond()))),
            ("created_at < {}", filter.created_before.map(|time| Value::Integer(time.as_microsecond()))),
            (dialect.worded, (!words.is_empty()).then(|| Value::Text(dialect.beginnings(&words)))),
            ("1 = {}", nobody.then_some(Value::Integer(0))),
        ];
        let mut word = " WHERE ";
        for (condition, value) in conditions {
            let Some(value) = value else { continue };
            let parameter = self.parameter(value);
            self.sql.push_str(word);
            self.sql.push_str(&condition.replace("{}", &parameter));
            word = " AND ";
        }
        word == " AND "
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::store::Sort;

    const DIALECT: Dialect =
        Dialect { tagged: "tagged({})", worded: "worded({})", beginning: "{}*", and: " and ", or: " or " };

    #[test]
    fn a_page_asks_for_what_it_is_about_and_no_more() {
        let id = UserId::generate();
        let query = Query {
            filter: Filter { tag: Some("x".into()), words: vec!["Ada L".into()], ..Filter::default() },
            sort: Sort { by: SortBy::Name, descending: true },
            after: Some(Position { key: SortKey::Text("m".into()), id }),
            limit: 2,
        };
        let Statement { sql, values } = page(&DIALECT, &query);
        assert_eq!(
            sql,
            "SELECT id, version, body, name FROM users WHERE tagged($1) AND worded($2) AND (name, id) < ($3, $4) \
             ORDER BY name DESC, id DESC LIMIT $5"
        );
        let text = |text: &str| Value::Text(text.into());
        assert_eq!(values, [text("x"), text("(ada*) and (l*)"), text("m"), Value::Id(id), Value::Integer(3)]);
    }

    #[test]
    fn a_search_is_for_few_words_whatever_separates_them() {
        let letters: Vec<String> = ('a'..='z').map(String::from).collect();
        let first: Vec<String> = letters[..Filter::WORDS].iter().map(|word| format!("({word}*)")).collect();
        for words in [letters.clone(), vec![letters.join(".")]] {
            let filter = Filter { words, ..Filter::default() };
            let Statement { values, .. } = count(&DIALECT, &filter);
            assert_eq!(values, [Value::Text(first.join(" and "))], "{filter:?}");
        }
    }

    #[test]
    fn a_page_of_large_users_ends_early_and_never_before_its_first_one() {
        let query = Query { filter: Filter::default(), sort: Sort::default(), after: None, limit: 3 };
        let pages = |bytes: usize, count: i64| {
            let (mut rows, body) = (Rows::default(), Bytes::from(vec![b' '; bytes]));
            for version in 1..=count {
                let record = Record { id: UserId::generate(), version, body: body.clone() };
                if !rows.add(record, SortKey::Time(version)) {
                    break;
                }
            }
            let Page { records, next } = paged(&query, rows);
            let last = records.last().map(|last| last.id);
            assert!(next.as_ref().is_none_or(|next| Some(next.id) == last));
            (records.len(), next.is_some())
        };
        for (bytes, count, expected) in [
            (1, 3, (3, false)),
            (1, 4, (3, true)),
            (MOST_BYTES / 2, 3, (2, true)),
            (MOST_BYTES / 2, 2, (2, false)),
            (MOST_BYTES + 1, 1, (1, false)),
            (MOST_BYTES + 1, 2, (1, true)),
        ] {
            assert_eq!(pages(bytes, count), expected, "{count} of {bytes} bytes");
        }
    }
}
