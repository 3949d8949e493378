from six_documents import (  # noqa: F401
    dual_folder,
    kb,
    kb_folder,
    one_thread,
    start_method,
    texts,
    trained,
    trained_folder,
)
