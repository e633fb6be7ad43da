const query = new URLSearchParams(location.search);
const frame = document.querySelector("iframe");
frame.width = query.get("width");
frame.height = query.get("height");
frame.src = query.get("url");
