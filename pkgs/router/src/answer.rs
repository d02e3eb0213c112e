//! What a handler gives: a response at once, or one to wait for, without a box for most futures.
#![allow(unsafe_code)]

use std::any::{Any, TypeId};
use std::fmt;
use std::future::Future;
use std::marker::{PhantomData, PhantomPinned};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::Response;

/// Bytes of a future that are kept in place. As large as a response with a body of four words, which an
/// answer has room for anyway; a larger future goes into a box.
const ROOM: usize = 192;

/// The strictest alignment of a future that is kept in place.
const ALIGNMENT: usize = 16;

/// A response, at once or later.
///
/// A future is kept in place up to [192 bytes](Answer::new); one that is larger takes a box.
#[must_use = "an answer does nothing unless it is sent or awaited"]
pub struct Answer<R>(State<R>);

enum State<R> {
    /// The response, until it is taken.
    Ready(Option<Response<R>>),
    Waiting(Slot<Response<R>>),
}

impl<R> From<Response<R>> for Answer<R> {
    #[inline]
    fn from(response: Response<R>) -> Self {
        Self(State::Ready(Some(response)))
    }
}

impl<R: 'static> Answer<R> {
    /// What the future gives. It takes no memory when it has at most 192 bytes, aligned to at most 16, or is
    /// an answer itself.
    #[inline]
    pub fn new<F>(future: F) -> Self
    where
        F: Future<Output = Response<R>> + Send + 'static,
    {
        // An answer would be a future in a future. Which type it is, is known when this is compiled.
        if TypeId::of::<F>() == TypeId::of::<Self>() {
            let mut future = Some(future);
            let answer = (&mut future as &mut dyn Any).downcast_mut::<Option<Self>>();
            return answer.and_then(Option::take).unwrap_or(Self(State::Ready(None)));
        }
        if Slot::<Response<R>>::holds::<F>() {
            Self(State::Waiting(Slot::new(future)))
        } else {
            Self(State::Waiting(Slot::new(Box::pin(future))))
        }
    }

    /// The response, changed; at once when it is there.
    pub fn map<F>(self, change: F) -> Self
    where
        F: FnOnce(Response<R>) -> Response<R> + Send + 'static,
    {
        match self.0 {
            State::Ready(response) => Self(State::Ready(response.map(change))),
            State::Waiting(slot) => Self::new(async move { change(slot.await) }),
        }
    }

    /// Changes the response if it is there; otherwise gives the answer to wait for.
    #[expect(clippy::result_large_err, reason = "both are large, and neither is an error")]
    pub(crate) fn change(mut self, change: impl FnOnce(&mut Response<R>)) -> Result<Self, Self> {
        match &mut self.0 {
            State::Ready(response) => {
                response.as_mut().map(change);
                Ok(self)
            }
            State::Waiting(_) => Err(self),
        }
    }

    /// The response when it is there, the answer otherwise.
    ///
    /// # Errors
    /// When the response is to be waited for.
    #[expect(clippy::result_large_err, reason = "both are large, and neither is an error")]
    pub fn into_ready(self) -> Result<Response<R>, Self> {
        match self.0 {
            State::Ready(Some(response)) => Ok(response),
            state => Err(Self(state)),
        }
    }
}

impl<R> Future for Answer<R> {
    type Output = Response<R>;

    /// # Panics
    /// After it was ready.
    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response<R>> {
        // SAFETY: of what is in it only the slot is pinned, and it is never moved out of here.
        match unsafe { &mut self.get_unchecked_mut().0 } {
            State::Ready(response) => {
                Poll::Ready(response.take().expect("an answer is polled until it is ready"))
            }
            // SAFETY: the slot is where the pinned answer is.
            State::Waiting(slot) => unsafe { Pin::new_unchecked(slot) }.poll(cx),
        }
    }
}

impl<R: fmt::Debug> fmt::Debug for Answer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            State::Ready(response) => f.debug_tuple("Ready").field(response).finish(),
            State::Waiting(_) => f.write_str("Waiting"),
        }
    }
}

/// A future of any type, in place.
struct Slot<T> {
    room: Room,
    /// What is known of the future's type.
    poll: unsafe fn(*mut (), &mut Context<'_>) -> Poll<T>,
    drop: unsafe fn(*mut ()),
    /// What is in the room may point into itself, and goes wherever the slot is sent.
    _pinned: PhantomPinned,
    _future: PhantomData<dyn Future<Output = T> + Send>,
}

#[repr(align(16))]
struct Room(#[expect(dead_code, reason = "used by pointers to the room")] MaybeUninit<[u8; ROOM]>);

impl<T> Slot<T> {
    const fn holds<F>() -> bool {
        size_of::<F>() <= ROOM && align_of::<F>() <= ALIGNMENT
    }

    /// The future must fit.
    #[inline(always)]
    fn new<F>(future: F) -> Self
    where
        F: Future<Output = T> + Send + 'static,
    {
        assert!(Self::holds::<F>());
        let mut room = Room(MaybeUninit::uninit());
        // SAFETY: the room is large enough for `F` and aligned for it.
        unsafe { (&raw mut room).cast::<F>().write(future) };
        Self {
            room,
            // SAFETY: called with the room of a slot that was made for `F`, which is pinned.
            poll: |room, cx| unsafe { Pin::new_unchecked(&mut *room.cast::<F>()) }.poll(cx),
            // SAFETY: called once, with the room of a slot that was made for `F`.
            drop: |room| unsafe { room.cast::<F>().drop_in_place() },
            _pinned: PhantomPinned,
            _future: PhantomData,
        }
    }
}

impl<T> Future for Slot<T> {
    type Output = T;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        // SAFETY: nothing is moved; the future stays where it is until it is dropped.
        let slot = unsafe { self.get_unchecked_mut() };
        // SAFETY: the room has the future that the functions are for, and is pinned as the slot is. There is
        // no reference to the room, since the future may have some to itself.
        unsafe { (slot.poll)((&raw mut slot.room).cast(), cx) }
    }
}

impl<T> Drop for Slot<T> {
    fn drop(&mut self) {
        // SAFETY: the future is in the room until here, and is not used again.
        unsafe { (self.drop)((&raw mut self.room).cast()) }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Waker;

    use super::*;

    /// Counts how often it is dropped.
    struct Dropped(Arc<AtomicUsize>);

    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Pending once.
    async fn pause() {
        let mut polled = false;
        std::future::poll_fn(|cx| {
            if std::mem::replace(&mut polled, true) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    /// The response and how often it took a poll.
    fn polled<R>(answer: Answer<R>) -> (Response<R>, usize) {
        let mut answer = pin!(answer);
        let mut cx = Context::from_waker(Waker::noop());
        for polls in 1..100 {
            if let Poll::Ready(response) = answer.as_mut().poll(&mut cx) {
                return (response, polls);
            }
        }
        panic!("never ready");
    }

    #[test]
    fn futures_of_any_size_keep_what_they_hold() {
        fn case<const SIZE: usize>() {
            let drops = Arc::new(AtomicUsize::new(0));
            let (text, guard) = ([7_u8; SIZE], Dropped(drops.clone()));
            let answer = Answer::new(async move {
                let held = &text;
                pause().await;
                let _guard = &guard;
                Response::new(held.iter().map(|&byte| usize::from(byte)).sum::<usize>())
            });
            // Moved before it is pinned.
            let answers = vec![answer];
            let (response, polls) = polled(answers.into_iter().next().expect("one"));
            assert_eq!((*response.body(), polls), (SIZE * 7, 2));
            assert_eq!(drops.load(Ordering::Relaxed), 1);
        }
        case::<0>();
        case::<1>();
        case::<100>();
        case::<{ ROOM }>();
        case::<10_000>();
    }

    #[test]
    fn a_future_is_dropped_once_wherever_it_stops() {
        for polls in 0..3 {
            let drops = Arc::new(AtomicUsize::new(0));
            let guard = Dropped(drops.clone());
            {
                let mut answer = pin!(Answer::new(async move {
                    let _guard = guard;
                    pause().await;
                    Response::new(())
                }));
                for _ in 0..polls {
                    let _ = answer.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                }
            }
            assert_eq!(drops.load(Ordering::Relaxed), 1, "after {polls} polls");
        }
    }

    #[test]
    fn strictly_aligned_futures_work() {
        #[repr(align(64))]
        #[derive(Clone, Copy)]
        struct Aligned(u8);
        let value = Aligned(3);
        let answer = Answer::new(async move {
            let held = &value;
            pause().await;
            assert_eq!(std::ptr::from_ref(held).addr() % 64, 0);
            Response::new(held.0)
        });
        assert_eq!(*polled(answer).0.body(), 3);
    }

    #[test]
    fn an_answer_of_an_answer_is_that_answer() {
        let ready = Answer::new(Answer::from(Response::new(1)));
        assert_eq!(ready.into_ready().ok().map(Response::into_body), Some(1));
    }

    #[test]
    fn responses_are_changed_at_once_or_later() {
        let add = |response: Response<i32>| response.map(|body| body + 1);
        let ready = Answer::from(Response::new(1)).map(add).map(add);
        assert_eq!(ready.into_ready().ok().map(Response::into_body), Some(3));
        let waiting = Answer::new(async {
            pause().await;
            Response::new(1)
        });
        let waiting = waiting.map(add).into_ready().expect_err("not yet");
        assert_eq!(*polled(waiting).0.body(), 2);
    }

    #[test]
    #[should_panic(expected = "polled until it is ready")]
    fn polling_again_panics() {
        let mut answer = pin!(Answer::from(Response::new(())));
        for _ in 0..2 {
            let _ = answer.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        }
    }
}
