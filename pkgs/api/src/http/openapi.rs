//! The API's description (OpenAPI 3.1), generated from the handlers.

use http::Method;
use serde::Serialize;
use service::problem::Problem;
use utoipa::openapi::path::{Operation, Parameter, PathItem};
use utoipa::openapi::schema::{
    AdditionalProperties, AnyOfBuilder, ArrayBuilder, Object, ObjectBuilder, Schema, SchemaFormat, Type,
};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{Content, OpenApi as Description, Ref, RefOr, Response};
use utoipa::{Modify, OpenApi, ToSchema};

use crate::json::object::Unknown;
use crate::user::{Address, Document, Profile};

/// The general part of the description.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "linerate-api",
        description = "Users, over JSON. Errors are RFC 9457 problems that point at each part of a body that is wrong. A user's ETag is its version. API keys are made with `linerate-api key add`, or by one of the scope write."
    ),
    components(schemas(Document, Profile, Address, User, UserSelection, UserPatch, Problem)),
    tags(
        (name = "users", description = "One user, or a page of them"),
        (name = "batch", description = "Many users, in one transaction"),
        (name = "keys", description = "Who may use this API"),
        (name = "documentation", description = "This")
    )
)]
pub(super) struct Base;

/// A user, as stored and sent
#[derive(ToSchema)]
#[allow(dead_code, reason = "only its schema is of use")]
pub(super) struct User {
    /// A UUID of version 7
    #[schema(format = "uuid")]
    id: String,
    /// How often the user has been written; its ETag
    #[schema(minimum = 1)]
    version: i64,
    /// When the user was created
    #[schema(format = DateTime)]
    created_at: String,
    /// When the user was last written
    #[schema(format = DateTime)]
    updated_at: String,
}

/// The requested members of a user; by default all
#[derive(ToSchema)]
pub(super) struct UserSelection {}

/// A change of a user: members replace existing ones, and null removes them (RFC 7396)
#[derive(ToSchema)]
pub(super) struct UserPatch {}

/// Users to create
#[derive(ToSchema)]
#[allow(dead_code, reason = "only its schema is of use")]
pub(super) struct NewUsers {
    /// By default at most 1,000
    #[schema(min_items = 1, max_items = 1000)]
    users: Vec<Document<'static>>,
}

/// Users
#[derive(ToSchema)]
#[allow(dead_code, reason = "only its schema is of use")]
pub(super) struct Users {
    users: Vec<User>,
}

/// Ids of users
#[derive(ToSchema)]
#[allow(dead_code, reason = "only its schema is of use")]
pub(super) struct Ids {
    #[schema(schema_with = ids_schema)]
    ids: Vec<String>,
}

fn ids_schema() -> RefOr<Schema> {
    let id =
        ObjectBuilder::new().schema_type(Type::String).format(Some(SchemaFormat::Custom("uuid".to_owned())));
    let description = Some("At most 1,000 unless the service is told otherwise; each counts once");
    ArrayBuilder::new().items(id).min_items(Some(1)).max_items(Some(1000)).description(description).into()
}

/// Users by their ids
#[derive(ToSchema)]
#[allow(dead_code, reason = "only its schema is of use")]
pub(super) struct Lookup {
    users: Vec<User>,
    /// Ids that no user has
    missing: Vec<String>,
}

/// The result of deleting users
#[derive(ToSchema)]
#[allow(dead_code, reason = "only its schema is of use")]
pub(super) struct Deletion {
    /// Ids of users that were deleted
    deleted: Vec<String>,
    /// Ids that no user had
    missing: Vec<String>,
}

/// Part of a list
#[derive(ToSchema)]
#[allow(dead_code, reason = "only its schema is of use")]
pub(super) struct Page {
    users: Vec<UserSelection>,
    /// The cursor of the next page; null on the last
    #[schema(required = true)]
    next: Option<String>,
}

/// How many users there are
#[derive(Serialize, ToSchema)]
pub(super) struct Count {
    pub(super) count: u64,
}

/// Completes the description of what the router serves.
pub(super) fn complete(description: &mut Description, unknown: Unknown) {
    Bearer.modify(description);
    schemas(description, unknown);
    problems(description);
    if unknown == Unknown::Keep {
        select_any(description);
    }
}

/// The security scheme that the operations refer to.
struct Bearer;

impl Modify for Bearer {
    fn modify(&self, description: &mut Description) {
        let mut scheme = Http::new(HttpAuthScheme::Bearer);
        scheme.description = Some("`read` keys read, `write` keys do everything. None is needed where the service listens on loopback alone".to_owned());
        description
            .components
            .get_or_insert_default()
            .add_security_scheme("key", SecurityScheme::Http(scheme));
    }
}

/// Completes the schemas that derive from the document's, which is defined once.
fn schemas(description: &mut Description, unknown: Unknown) {
    let Some(components) = &mut description.components else { return };
    let schemas = &mut components.schemas;
    let mut object = |name: &str, change: &mut dyn FnMut(&mut Object)| {
        if let Some(RefOr::T(Schema::Object(object))) = schemas.get_mut(name) {
            change(object);
        }
    };
    let mut document = Object::new();
    object("Document", &mut |it| document = it.clone());
    object("User", &mut |user| {
        user.properties.extend(document.properties.clone());
        user.required.extend(["email", "name", "status"].map(str::to_owned));
    });
    let mut user = Object::new();
    object("User", &mut |it| user = it.clone());
    object("UserSelection", &mut |selection| selection.properties = user.properties.clone());
    object("UserPatch", &mut |patch| {
        let is_optional = |name: &String| !document.required.contains(name);
        let properties = document.properties.iter().map(|(name, schema)| {
            let schema = schema.clone();
            (name.clone(), if is_optional(name) { or_null(schema) } else { schema })
        });
        patch.properties = properties.collect();
    });
    if unknown == Unknown::Refuse {
        for name in ["Document", "Profile", "Address", "UserPatch", "NewUsers", "Ids"] {
            object(name, &mut |it| {
                it.additional_properties = Some(Box::new(AdditionalProperties::FreeForm(false)));
            });
        }
    }
}

/// What a patch may have for a member that a user need not have: null removes it.
fn or_null(schema: RefOr<Schema>) -> RefOr<Schema> {
    match schema {
        // An optional object, with null already.
        RefOr::T(Schema::OneOf(_)) => schema,
        schema => AnyOfBuilder::new().item(schema).item(ObjectBuilder::new().schema_type(Type::Null)).into(),
    }
}

/// Where unknown members are kept, they can be selected too.
fn select_any(description: &mut Description) {
    let operations = description.paths.paths.values_mut().flat_map(operations);
    let parameters = operations.filter_map(|(_, operation)| operation.parameters.as_mut()).flatten();
    for parameter in parameters {
        if let RefOr::T(Parameter { name, schema: Some(RefOr::T(Schema::Object(object))), .. }) = parameter
            && name == "fields"
        {
            object.pattern = Some("^[^,]+(,[^,]+){0,31}$".to_owned());
        }
    }
}

/// The operations of a path, by method.
pub(super) fn operations(item: &mut PathItem) -> impl Iterator<Item = (Method, &mut Operation)> {
    let operations = [
        (Method::GET, &mut item.get),
        (Method::POST, &mut item.post),
        (Method::PUT, &mut item.put),
        (Method::PATCH, &mut item.patch),
        (Method::DELETE, &mut item.delete),
    ];
    operations.into_iter().filter_map(|(method, operation)| Some((method, operation.as_mut()?)))
}

/// Adds the error answers that all operations share. Each is a problem (RFC 9457).
fn problems(description: &mut Description) {
    for item in description.paths.paths.values_mut() {
        for (_, operation) in operations(item).filter(|(_, operation)| operation.security.is_some()) {
            let writes = operation.request_body.is_some();
            let known = [
                ("400", "Malformed", true),
                ("401", "No key, or an unknown one", true),
                ("403", "The key is for less", true),
                ("404", "There is no such user", true),
                ("406", "The client takes no JSON", true),
                ("412", "The user is at another version", true),
                ("413", "The body is too long", writes),
                ("415", "The body is of another media type", writes),
                ("422", "The body does not fit; each part at fault is pointed at", writes),
                ("428", "If-Match has to say which version is meant", true),
                ("429", "The key is used too often", true),
                ("503", "The database does not answer now", true),
                ("default", "Any other error", true),
            ];
            let responses = &mut operation.responses.responses;
            for (status, text, _) in known.into_iter().filter(|(.., applies)| *applies) {
                responses.entry(status.to_owned()).or_insert_with(|| RefOr::T(problem(text)));
            }
        }
    }
}

fn problem(text: &str) -> Response {
    let schema = RefOr::Ref(Ref::from_schema_name("Problem"));
    let mut response = Response::new(text);
    response.content.insert(service::problem::CONTENT_TYPE.to_owned(), RefOr::T(Content::new(Some(schema))));
    response
}
