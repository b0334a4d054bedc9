# expect: host_objects | titles
# limit: 300M
from xml.dom.minidom import parseString

titles = []
for n in range(5000):
    rows = "".join(f"<row n='{i}'>{i * n}</row>" for i in range(300))
    page = parseString(f"<page><title>Page {n}</title>{rows}</page>")
    titles.append(page.documentElement.firstChild)
print(len(titles))
