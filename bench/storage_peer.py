"""A peer of `rubato bench storage`: programs that read and write a store at 127.0.0.1.

    storage_peer.py boto3 PORT FILE              uploads FILE
    storage_peer.py streaming PORT FOLDER FILE SIDE LIMIT
        writes the images of FILE (idx, SIDE x SIDE) as shards of 1 MiB into FOLDER/bucket/shards, which the
        store serves, and reads an epoch of them, with a cache of LIMIT bytes in FOLDER/theirs

It prints "ready DETAIL" or "missing WHY", then answers each line on standard input with the seconds
of one upload, or of one epoch and its samples.
"""
import os
import sys
import time


def say(text):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def boto3_side(path):
    import boto3
    s3 = boto3.client("s3", endpoint_url=os.environ["S3_ENDPOINT_URL"])

    def upload():
        s3.upload_file(path, "bucket", "theirs")
        return ""
    return f"boto3 {boto3.__version__}", upload


def streaming_side(folder, path, side, limit):
    import numpy
    import streaming
    images = numpy.fromfile(path, dtype=numpy.uint8, offset=16).reshape(-1, side * side)
    with streaming.MDSWriter(out=f"{folder}/bucket/shards", columns={"x": "bytes"}, size_limit=1 << 20) as out:
        for image in images:
            out.write({"x": image.tobytes()})
    data = streaming.StreamingDataset(remote="s3://bucket/shards", local=f"{folder}/theirs", shuffle=True,
                                      batch_size=64, cache_limit=limit)

    def epoch():
        return sum(1 for _ in data)
    return f"mosaicml-streaming {streaming.__version__}", epoch


def main():
    os.environ.update(S3_ENDPOINT_URL=f"http://127.0.0.1:{sys.argv[2]}", AWS_ACCESS_KEY_ID="someone",
                      AWS_SECRET_ACCESS_KEY="something", AWS_DEFAULT_REGION="us-east-1", NO_PROXY="127.0.0.1")
    try:
        if sys.argv[1] == "boto3":
            detail, go = boto3_side(sys.argv[3])
        else:
            detail, go = streaming_side(sys.argv[3], sys.argv[4], int(sys.argv[5]), int(sys.argv[6]))
    except ImportError as e:
        say(f"missing {e}")
        return
    say(f"ready {detail}")
    for _ in sys.stdin:
        begun = time.perf_counter()
        done = go()
        say(f"{time.perf_counter() - begun:.9f} {done}")


if __name__ == "__main__":
    main()
