"""The report of `dshpc doctor --bundle`: one archive for a bug tracker, scrubbed, that replays.

    from dshpc_setup.bundle import sources, scrubbed, contents, writing

    writing.need_place(path, reporter)                    # before anything is asked
    asked = sources.ask(machine, project, (known, findings), reporter)
    files = contents.listed(scrubbed.files(machine, asked))
    print(files[contents.NAME])                           # to look through before it is sent
    writing.write(path, files, owner)

`replay` reads one back, from the archive or from the folder that somebody unpacked it to.
"""

PROOF_SCHEMA = "dshpc.proof/1"
SETTINGS_SCHEMA = "dshpc.settings/1"
VERSIONS_SCHEMA = "dshpc.versions/1"
