//! Query parameters.

use serde::de::DeserializeOwned;
use service::problem::Problem;

use crate::http::failure::Failure;

/// The parameters of a query.
///
/// # Errors
/// 400; it says which one is wrong.
pub(in crate::http) fn query<T: DeserializeOwned + utoipa::IntoParams>(
    text: Option<&str>,
) -> Result<T, Failure> {
    let text = text.unwrap_or_default();
    known_only(text, &names::<T>())?;
    let pairs = serde_urlencoded::Deserializer::new(url::form_urlencoded::parse(text.as_bytes()));
    serde_path_to_error::deserialize(pairs).map_err(|error| {
        let path = error.path().to_string();
        let named = if path == "." { String::new() } else { format!("{path}: ") };
        Problem::bad_request(format!("the query is wrong: {named}{}", error.inner())).into()
    })
}

/// The names of parameters.
pub(in crate::http) fn names<T: utoipa::IntoParams>() -> Vec<String> {
    T::into_params(|| None).into_iter().map(|parameter| parameter.name).collect()
}

/// Refuses a query that is badly encoded, which would be misread, or that has unknown parameters; the error lists the
/// known ones.
pub(in crate::http) fn known_only(text: &str, known: &[String]) -> Result<(), Failure> {
    let valid = percent_encoding::percent_decode_str(text).decode_utf8().is_ok() && well_encoded(text);
    if !valid {
        return Err(Problem::bad_request("the query is not percent-encoded UTF-8").into());
    }
    let mut given = url::form_urlencoded::parse(text.as_bytes());
    match given.find(|(name, _)| !known.iter().any(|known| known == name)) {
        Some((name, _)) => {
            let name: String = name.chars().take(64).collect();
            Err(wrong(&name, format_args!("there is no such parameter; there are {}", known.join(", "))))
        }
        None => Ok(()),
    }
}

fn well_encoded(text: &str) -> bool {
    let digits = |rest: &str| rest.len() >= 2 && rest.bytes().take(2).all(|byte| byte.is_ascii_hexdigit());
    text.split('%').skip(1).all(digits)
}

/// 400: this parameter is wrong.
pub(in crate::http) fn wrong(name: &str, detail: impl std::fmt::Display) -> Failure {
    Problem::bad_request(format!("the query is wrong: {name}: {detail}")).into()
}
