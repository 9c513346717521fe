"""What the command line leaves in an output before a plan is made there."""

from functools import partial

from bert_embed.transforms.blocks import DocumentBlock
from bert_embed.transforms.listing import (
    StoredListing,
    files_to_read,
    input_files,
    listing_digest,
    write_listing,
)
from bert_embed.transforms.output_folder import OutputFolder
from bert_embed.transforms.plan import PlanBlocks, PlanRequest
from bert_embed.transforms.read.columns import Columns
from bert_embed.transforms.read.reader import document_blocks, read_records
from bert_embed.transforms.read.steps import read_unfinished


def plan_of(output, source, block_bytes=100, part_docs=1000, run="run", examples=None):
    """PlanBlocks of an input whose listing is in the output."""
    listed = input_files([str(source)])
    folder = OutputFolder(str(output))
    folder.prepare()
    listing = StoredListing(listing_digest(listed), files_to_read(listed, "text"))
    write_listing(folder, listing)
    request = PlanRequest(block_bytes, listing.digest, str(output))
    read_parts = partial(read_records, part_docs=part_docs, block_bytes=block_bytes)
    return PlanBlocks(request, run, read_parts)


def read_blocks(specs, output, part_docs, block_bytes, run="run"):
    """The documents of BlockSpecs, and what an attempt before finished of them."""

    def read(spec, done):
        return document_blocks(spec, Columns(), part_docs, block_bytes, done)

    return read_unfinished(specs, OutputFolder(str(output)), run, read, DocumentBlock)
