import type { Texts } from '../texts.ts';

export const de: Texts = {
  theApplication: 'die Anwendung',
  language: 'Sprache',
  close: 'Schließen',
  loading: 'Wird geladen',
  back: 'Zurück',
  backToApp: 'Zurück: {app}',
  tryAgain: 'Noch einmal versuchen',
  finish: 'Fertig',
  chooseTitle: 'Was möchten Sie verbinden?',
  search: 'Suchen',
  showMore: 'Mehr anzeigen',
  nothingFits: 'Nichts heißt „{search}“.',
  nothingTitle: 'Es gibt nichts zu verbinden',
  nothingText: 'Hier ist noch nichts eingerichtet. Sagen Sie den Betreibern Bescheid: {app}.',
  test: 'Test',
  testHelp: 'Ein Anbieter zum Ausprobieren: Es wird kein echtes Konto verwendet.',
  connectTitle: '{name} verbinden',
  reconnectTitle: '{name} neu verbinden',
  intro:
    'Zugriff auf Ihr Konto bei {provider} für: {app}. Fahren Sie nur fort, wenn Sie selbst von dort kommen.',
  introForm: 'Zugriff auf {provider} für: {app}. Fahren Sie nur fort, wenn Sie selbst von dort kommen.',
  for: 'Für',
  at: 'Über',
  accountSame: 'Wählen Sie dasselbe Konto wie bisher: {email}.',
  accountReplaceable:
    'Bisher ist {email} verbunden. Wenn Sie ein anderes Konto wählen, tritt es an dessen Stelle.',
  accountEndUser: 'Wählen Sie das Konto {email}. Ein anderes wird nicht angenommen.',
  willAsk: '{provider} wird Sie um Folgendes bitten',
  willAskMore: '{provider} wird Sie zusätzlich zu dem bitten, was Sie schon erlaubt haben',
  continueTo: 'Weiter zu {provider}',
  connect: 'Verbinden',
  howTo: 'So geht es',
  somethingElse: 'Etwas anderes verbinden',
  optional: 'freiwillig',
  needed: 'Bitte ausfüllen.',
  doesNotFit: 'Das passt nicht.',
  show: 'Eingabe zeigen oder verbergen',
  apiKey: 'API-Schlüssel',
  apiKeyHelp: 'Sie finden ihn in den Einstellungen Ihres Kontos bei {provider}.',
  username: 'Benutzername',
  password: 'Passwort',
  client_id: 'Client-ID',
  client_secret: 'Client-Geheimnis',
  clientHelp: 'Ihr Konto bei {provider} vergibt beides, meist unter „Entwickler“ oder „API“.',
  formRefused:
    '{provider} hat das nicht angenommen. Prüfen Sie Ihre Angaben und versuchen Sie es noch einmal.',
  waitingTitle: 'Machen Sie im anderen Fenster weiter',
  waitingText: 'Dort fragt Sie {provider}. Diese Seite merkt von selbst, wenn Sie fertig sind.',
  lateText:
    'Was Sie dort begonnen haben, können Sie noch abschließen; diese Seite merkt es. Ist das Fenster weg, lassen Sie sich einen neuen Link geben, denn dieser ist abgelaufen: {app}.',
  closedTitle: 'Das andere Fenster ist weg',
  closedText:
    'Wenn Sie sich dort noch anmelden, machen Sie einfach weiter. Haben Sie es geschlossen, versuchen Sie es noch einmal.',
  blockedTitle: 'Ihr Browser hat das Fenster blockiert',
  blockedText: 'Öffnen Sie es mit der Schaltfläche unten.',
  open: '{provider} öffnen',
  showAgain: 'Fenster noch einmal öffnen',
  underWay:
    'Sie waren bei {provider}, und bisher kam nichts zurück. Unten steht, woran es liegen kann; Sie können es jederzeit noch einmal versuchen.',
  hints: 'Hat {provider} einen Fehler gezeigt?',
  hintUnverified: '„Diese App ist nicht überprüft“',
  hintUnverifiedText:
    '{provider} hat die Anwendung noch nicht geprüft. Wenn Sie ihr vertrauen, wählen Sie „Erweitert“ und fahren Sie fort.',
  hintTesters: '„Zugriff blockiert“, oder die App wird getestet',
  hintTestersText: 'Die Betreiber müssen Ihr Konto als Tester eintragen oder die App veröffentlichen.',
  hintPolicy: 'Eine Regel Ihrer Organisation (admin_policy_enforced, org_internal)',
  hintPolicyText: 'Bitten Sie Ihre Administration, die Anwendung zu erlauben.',
  hintAccount: 'Das falsche Konto',
  hintAccountText:
    'Wählen Sie dort „Anderes Konto verwenden“, oder melden Sie sich zuerst bei {provider} ab.',
  hintSetup: 'redirect_uri_mismatch, invalid_client oder deleted_client',
  hintSetupText:
    'Die Anwendung ist falsch eingerichtet. Sagen Sie den Betreibern Bescheid; die Rücksprungadresse ist {redirect}.',
  hintBrowser: 'disallowed_useragent',
  hintBrowserText: 'Öffnen Sie den Link in einem gewöhnlichen Browser statt in einer anderen App.',
  hintBusy: 'rate_limit_exceeded',
  hintBusyText: 'Gerade melden sich zu viele Menschen an. Versuchen Sie es später noch einmal.',
  hintNothing: 'Gar nichts',
  hintNothingText: 'Schließen Sie das andere Fenster und versuchen Sie es noch einmal, so oft Sie möchten.',
  doneTitle: '{name} ist verbunden',
  doneText: 'Sie können diese Seite jetzt schließen und zurückkehren: {app}.',
  partTitle: '{name} ist verbunden, aber nicht ganz',
  partText: 'Diese Kästchen waren nicht angekreuzt, deshalb geht vielleicht nicht alles:',
  grantRest: 'Den Rest erlauben',
  without: 'Ohne das weitermachen',
  sheetTitle: 'Welches Tabellenblatt?',
  sheetText: '{name} ist verbunden. Wählen Sie das Blatt, dessen Zeilen gelesen werden sollen.',
  sheetLink: 'Link der Tabelle',
  sheetLinkHelp: 'Öffnen Sie sie im Browser und kopieren Sie die Adresse.',
  sheetOpen: 'Tabelle öffnen',
  sheetOr: 'Oder eine von diesen',
  sheetNone: 'Eine solche Tabelle gibt es nicht.',
  sheetOther: 'Eine andere Tabelle',
  sheetTab: 'Blatt',
  sheetHeader: 'Zeile mit den Überschriften',
  sheetKey: 'Spalte, an der man die Zeilen unterscheidet',
  sheetKeyHelp: 'Zum Beispiel eine Nummer oder E-Mail-Adresse, die keine zwei Zeilen gemeinsam haben.',
  sheetKeyNone: 'Keine: nach dem Inhalt der Zeilen',
  sheetKeyTwice: 'Mehrere Zeilen haben dort dasselbe: {keys}.',
  sheetKeyEmpty: 'In einigen Zeilen steht dort nichts.',
  sheetNoColumns:
    'In dieser Zeile stehen keine Überschriften. Wählen Sie eine andere Zeile oder ein anderes Blatt.',
  sheetRows: 'Die ersten Zeilen',
  sheetUse: 'Dieses Blatt verwenden',
  sheetSkip: 'Jetzt nicht',
  sheetUnavailable:
    '{account} kann diese Tabelle nicht lesen. Geben Sie sie für dieses Konto frei oder wählen Sie eine andere. Eine Excel-Datei muss zuerst als Google-Tabelle gespeichert werden.',
  sheetBadLink:
    'Das ist kein Link zu einer Google-Tabelle. Öffnen Sie die Tabelle im Browser und kopieren Sie die ganze Adresse.',
  sheetScopes:
    'Es wurde nicht alles erlaubt, was zum Lesen von Tabellen nötig ist. Lassen Sie sich einen neuen Link geben.',
  sheetBusy:
    'Google nimmt im Moment keine weiteren Anfragen an. Warten Sie eine Minute und versuchen Sie es noch einmal.',
  sheetLate: 'Dieser Link ist abgelaufen, oder es wurde schon ein Blatt damit gewählt.',
  sheetFault:
    'Das hat nicht geklappt. Versuchen Sie es noch einmal; hilft das nicht, machen Sie ohne weiter.',
  expiredTitle: 'Dieser Link ist abgelaufen',
  expiredText:
    'Ein Link gilt 30 Minuten. Es wurde nichts verbunden. Lassen Sie sich einen neuen geben: {app}.',
  unknownTitle: 'Dieser Link ist ungültig',
  unknownText:
    'Er wurde vielleicht zurückgezogen oder ist schon länger abgelaufen. Lassen Sie sich von der Anwendung einen neuen geben.',
  incompleteTitle: 'Dieser Link ist unvollständig',
  incompleteText:
    'Ein Teil fehlt, vielleicht beim Kopieren abgeschnitten. Öffnen Sie ihn genau so, wie die Anwendung ihn gegeben hat.',
  unreachableTitle: 'Der Dienst ist nicht erreichbar',
  unreachableText: 'Prüfen Sie Ihre Internetverbindung und versuchen Sie es noch einmal.',
  faultTitle: 'Hier ist etwas schiefgegangen',
  faultText:
    'Es liegt nicht an Ihnen. Versuchen Sie es noch einmal; geschieht es wieder, geben Sie den Betreibern weiter, was unten steht.',
  said: 'Was gemeldet wurde',
  deniedTitle: 'Der Zugriff wurde nicht erlaubt',
  deniedText:
    '{provider} meldet eine Ablehnung. Es wurde nichts verbunden. War das nicht gemeint, versuchen Sie es noch einmal und erlauben Sie den Zugriff.',
  blockedByAdminTitle: 'Ihre Organisation erlaubt das nicht',
  blockedByAdminText:
    '{provider} lehnt wegen einer Regel Ihrer Administration ab. Bitten Sie dort um Erlaubnis und versuchen Sie es dann noch einmal.',
  misconfiguredTitle: 'Die Anwendung ist falsch eingerichtet',
  misconfiguredText:
    '{provider} nimmt ihre Einstellungen nicht an. Ihr Konto ist nicht der Grund. Geben Sie den Betreibern weiter, was unten steht.',
  tooLateTitle: '{provider} nimmt diese Anmeldung nicht mehr an',
  tooLateText:
    'Es ist zu viel Zeit vergangen, oder die Seite wurde zweimal geladen. Versuchen Sie es noch einmal.',
  refusedTitle: '{provider} nimmt dieses Konto hier nicht an',
  refusedText:
    'Sie haben den Zugriff erlaubt, aber das Konto darf nicht nutzen, was gebraucht wird. Nehmen Sie ein anderes, oder fragen Sie {provider}.',
  busyTitle: '{provider} antwortet nicht',
  busyText:
    'Sie haben den Zugriff erlaubt, aber er kam nicht zustande. Es wurde nichts verbunden. Versuchen Sie es in einer Minute noch einmal.',
  oddTitle: '{provider} hat unerwartet geantwortet',
  oddText:
    'Es wurde nichts verbunden. Versuchen Sie es noch einmal; geschieht es wieder, geben Sie den Betreibern weiter, was unten steht.',
  otherAccountTitle: 'Das ist ein anderes Konto',
  otherAccountText:
    'Es wurde nichts geändert. Versuchen Sie es noch einmal und wählen Sie das erwartete Konto.',
  noAccountTitle: 'Das Konto ließ sich nicht feststellen',
  noAccountText:
    '{provider} hat nicht gesagt, welches Konto es ist, deshalb ließ es sich nicht vergleichen. Sagen Sie den Betreibern Bescheid.',
  otherBrowserTitle: 'Das wurde in einem anderen Browser begonnen',
  otherBrowserText:
    'Ein Link gilt nur in dem Browser, in dem begonnen wurde, und nur mit Cookies. Machen Sie dort weiter, oder lassen Sie sich einen neuen Link geben.',
  failedTitle: 'Die Verbindung kam nicht zustande',
  failedText:
    'Versuchen Sie es noch einmal. Geschieht es wieder, geben Sie den Betreibern weiter, was unten steht.',
  goneTitle: 'Diese Verbindung gibt es nicht mehr',
  goneText: 'Sie wurde inzwischen gelöscht. Verbinden Sie sie von der Anwendung aus neu.',
  otherThingTitle: 'Dieser Link ist für etwas anderes',
  otherThingText: 'Lassen Sie sich einen neuen Link geben: {app}.',
};
