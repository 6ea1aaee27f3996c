"""Asking for memory before it is needed, compiled: the vectors of a pool lie anywhere in hundreds of megabytes."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from deeped_ray.linking.compiling import compiled

AHEAD = 6
"""Rows that are asked for beforehand."""
_LINE = 64
"""Bytes that come at once."""


def _prefetch_of(typingctx, array, row, column):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """LLVM's, which numba does not know."""

    def write(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = signature.args[0]
        array_of: Any = make_array
        pointer_to: Any = cgutils.get_item_pointer
        own = array_of(kind)(context, builder, arguments[0])
        place = pointer_to(context, builder, kind, own, [*arguments[1:]], wraparound=False)
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        form = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        function = builder.module.declare_intrinsic("llvm.prefetch", [byte], form)
        # to read, soon again, data
        builder.call(function, [builder.bitcast(place, byte), number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64), write


_prefetch: Any = intrinsic(_prefetch_of)


@compiled
def fetch(rows, row) -> None:  # type: ignore[no-untyped-def]
    """Asks for a row; nothing happens if there is none."""
    if 0 <= row < len(rows):
        for column in range(0, rows.shape[1], _LINE // rows.itemsize):
            _prefetch(rows, row, column)


@compiled
def fetch_ahead(rows, numbers, at, end) -> None:  # type: ignore[no-untyped-def]
    """In a loop over numbers of rows, up to `end`: asks for a row that comes soon, and first for all up to it."""
    if at == 0:
        for each in range(min(AHEAD, end)):
            fetch(rows, numbers[each])
    if at + AHEAD < end:
        fetch(rows, numbers[at + AHEAD])
