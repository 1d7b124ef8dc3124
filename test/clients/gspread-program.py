"""What a program does with gspread, and everything that it sees, as JSON on the last line.

Settings come as JSON on standard input: root, token, headers, spreadsheet.
"""

import json
import sys

import gspread
import gspread.http_client
import gspread.urls
from google.oauth2.credentials import Credentials

settings = json.load(sys.stdin)
root = settings["root"]

# gspread has no option for another address: its constants are replaced, where they are made and where they are used.
for module in (gspread.urls, gspread.http_client, gspread.client):
    for name, value in list(vars(module).items()):
        if isinstance(value, str) and value.startswith("https://"):
            for host in ("https://sheets.googleapis.com", "https://www.googleapis.com"):
                value = value.replace(host, root)
            setattr(module, name, value)

client = gspread.authorize(Credentials(settings["token"]))
client.http_client.session.headers.update(settings["headers"])

book = client.open_by_key(settings["spreadsheet"])
seen = [book.title]
sheet = book.sheet1
seen.append(sheet.get_all_records())
sheet.append_row(["Cy", 50])
sheet.append_rows([["Di", 60], ["Ed", "=B2+1"]], value_input_option="USER_ENTERED")
seen.append(sheet.get_all_values())
sheet.update([["Ann", 31]], "A2:B2")
seen.append(sheet.acell("B2").value)
sheet.batch_update([{"range": "A3", "values": [["Bert"]]}, {"range": "B3", "values": [[41]]}])
seen.append(sheet.batch_get(["A1:A3", "B1:B3"]))
sheet.format("A1:B1", {"textFormat": {"bold": True}})
seen.append([cell.value for cell in sheet.findall("Bert")])
tab = book.add_worksheet(title="Zoë's/2024", rows=20, cols=4)
tab.update([[1, 2], [3, 4]], "A1")
tab.insert_row([0, 0], 1)
tab.delete_rows(2)
seen.append(tab.get_all_values())
seen.append([one.title for one in book.worksheets()])
sheet.batch_clear(["A2:B3"])
seen.append(sheet.get_all_values())
tab.clear()
book.del_worksheet(tab)
try:
    book.worksheet("not there")
except gspread.exceptions.WorksheetNotFound as error:
    seen.append(str(error))
try:
    sheet.get("Nope!A1")
except gspread.exceptions.APIError as error:
    seen.append([error.response.status_code, error.response.json()["error"]["message"]])
print(json.dumps(seen))
