import json, numpy, pathlib

def read_checkpoint(folder):
    manifest, tensors = json.loads(pathlib.Path(folder, "manifest.json").read_text()), {}
    for t in manifest["tensors"]:
        tensors[t["name"]] = numpy.empty(t["extents"], t["type"])
        for block in t["blocks"]:
            (lo, hi), path = block["box"], pathlib.Path(folder, block["file"])
            values = numpy.fromfile(path, t["type"], numpy.prod(numpy.subtract(hi, lo)), offset=block["offset"])
            tensors[t["name"]][tuple(map(slice, lo, hi))] = values.reshape(numpy.subtract(hi, lo))
    return manifest["state"], tensors
