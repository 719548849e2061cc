"""RecordIO files that are damaged, or used in ways that do not fit; what is written is in `data`."""

import os
import struct
import tempfile

from parity.spec import family, outcome

case, program = family(__name__)
MAGIC = struct.pack("<I", 0xCED7230A)


@program
def damage(mx):
    recordio, found = mx.recordio, []
    with tempfile.TemporaryDirectory() as folder:
        path, index = os.path.join(folder, "a.rec"), os.path.join(folder, "a.idx")
        writer = recordio.MXIndexedRecordIO(index, path, "w")
        for key in range(4):
            writer.write_idx(key, b"record %d" % key)
        writer.close()
        with open(path, "rb") as file:
            data = file.read()
        with open(path, "wb") as file:
            file.write(data[:16] + b"abcd" + data[20:])
        reader = recordio.MXRecordIO(path, "r")
        found += [reader.read().decode(), outcome(lambda: str(reader.read()))]
        reader = recordio.MXIndexedRecordIO(index, path, "r")
        found += [reader.read_idx(3).decode(), outcome(lambda: str(reader.read_idx(1))), reader.read_idx(2).decode()]
        found += [outcome(lambda: reader.read_idx(9)), outcome(lambda: recordio.MXRecordIO(folder + "/none.rec", "r"))]
        found += [outcome(lambda: reader.write(b"x"))]
        return found


@program
def orders_of_reading(mx):
    recordio, found = mx.recordio, []
    with tempfile.TemporaryDirectory() as folder:
        path, index = os.path.join(folder, "a.rec"), os.path.join(folder, "a.idx")
        writer = recordio.MXIndexedRecordIO(index, path, "w")
        for key in (5, 3, 8):
            found.append(writer.tell())
            writer.write_idx(key, b"%d" % key + MAGIC * (key % 2) + b"!" * key)
        writer.close()
        with open(index) as file:
            found.append(file.read())
        reader = recordio.MXIndexedRecordIO(index, path, "r")
        found += [str(reader.keys), str(sorted(reader.idx.items()))]
        for key in (3, 5):
            reader.seek(key)
            found += [str(reader.read()), str(reader.read())]
        found += [str(reader.read()), str(reader.read_idx(3)), str(reader.read()), str(reader.read())]  # to the end
        reader.reset()
        found += [str(reader.read()), str(reader.is_open)]
        reader.close()
        found.append(str(reader.is_open))
        reader.open()
        found.append(str(reader.read_idx(8)))
        return found


@program
def headers(mx):
    recordio = mx.recordio
    found = [repr(recordio.IRHeader(0, 2.5, 3, 4)), str(recordio.IRHeader(1, [1, 2], 3, 4))]
    for label in (1, 2.5, [1, 2, 3], (1.5,)):
        header, rest = recordio.unpack(recordio.pack(recordio.IRHeader(0, label, 7, 8), b"rest"))
        found += [str(header), rest.decode()]
    return found
