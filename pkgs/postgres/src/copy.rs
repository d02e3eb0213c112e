//! Bulk transfer of rows with COPY in PostgreSQL's binary format, in both directions.

use futures_util::{Stream, StreamExt, pin_mut};
use tokio_postgres::binary_copy::{BinaryCopyInWriter, BinaryCopyOutRow, BinaryCopyOutStream};
use tokio_postgres::types::{ToSql, Type};

use crate::error::Error;
use crate::session::Session;

/// Writes rows with a statement `COPY table (columns) FROM STDIN (FORMAT binary)`. Returns how many rows were written:
/// all of them or none.
///
/// # Errors
/// When the server refuses it or one of the rows, or the connection is lost.
pub async fn write<'a, R>(
    session: &Session,
    sql: &str,
    types: &[Type],
    rows: impl IntoIterator<Item = R>,
) -> Result<u64, Error>
where
    R: AsRef<[Box<dyn ToSql + Sync + Send + 'a>]>,
{
    session
        .whole(async {
            let sink = session.client().copy_in(sql).await?;
            let writer = BinaryCopyInWriter::new(sink, types);
            pin_mut!(writer);
            for row in rows {
                let values: Vec<&(dyn ToSql + Sync)> =
                    row.as_ref().iter().map(|value| &**value as &(dyn ToSql + Sync)).collect();
                writer.as_mut().write(&values).await?;
            }
            Ok(writer.finish().await?)
        })
        .await
}

/// Reads rows with a statement `COPY (query) TO STDOUT (FORMAT binary)`, as they arrive. The server waits for a slow
/// reader.
///
/// # Errors
/// When the server refuses it or the connection is lost.
pub async fn read(
    session: &Session,
    sql: &str,
    types: &[Type],
) -> Result<impl Stream<Item = Result<BinaryCopyOutRow, Error>>, Error> {
    let stream = session.whole(async { Ok(session.client().copy_out(sql).await?) }).await?;
    Ok(BinaryCopyOutStream::new(stream, types).map(|row| Ok(row?)))
}
