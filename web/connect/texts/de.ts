import type { Texts } from '../texts.ts';

export const de: Texts = {
  theApplication: 'die Anwendung',
  language: 'Sprache',
  close: 'Schließen',
  loading: 'Wird geladen',
  back: 'Zurück',
  backToApp: 'Zurück: {app}',
  tryAgain: 'Erneut versuchen',
  finish: 'Fertig',
  chooseTitle: 'Was möchten Sie verbinden?',
  search: 'Suchen',
  showMore: 'Mehr anzeigen',
  nothingFits: 'Keine Treffer für „{search}“.',
  nothingTitle: 'Es gibt nichts zu verbinden',
  nothingText: 'Hier ist noch keine Integration eingerichtet. Wenden Sie sich an den Support: {app}.',
  test: 'Test',
  testHelp: 'Ein Testanbieter: Es wird kein echtes Konto verwendet.',
  connectTitle: '{name} verbinden',
  reconnectTitle: '{name} neu verbinden',
  intro:
    'Diese Anwendung möchte auf Ihr Konto bei {provider} zugreifen: {app}. Fahren Sie nur fort, wenn Sie diese Seite selbst von dort geöffnet haben.',
  introForm:
    'Diese Anwendung möchte auf {provider} zugreifen: {app}. Fahren Sie nur fort, wenn Sie diese Seite selbst von dort geöffnet haben.',
  for: 'Für',
  at: 'Über',
  accountSame: 'Wählen Sie dasselbe Konto wie bisher: {email}.',
  accountReplaceable: 'Zurzeit ist {email} verbunden. Wenn Sie ein anderes Konto wählen, ersetzt es dieses.',
  accountEndUser: 'Wählen Sie das Konto {email}. Andere Konten werden nicht angenommen.',
  willAsk: '{provider} bittet Sie um diese Berechtigungen',
  willAskMore: '{provider} bittet Sie um diese zusätzlichen Berechtigungen',
  continueTo: 'Weiter zu {provider}',
  connect: 'Verbinden',
  howTo: 'Anleitung anzeigen',
  somethingElse: 'Ein anderes Konto verbinden',
  optional: 'optional',
  needed: 'Füllen Sie dieses Feld aus.',
  doesNotFit: 'Dieser Wert ist ungültig: {message}.',
  tooLong: 'Geben Sie höchstens {limit} Zeichen ein.',
  controlCharacters: 'Entfernen Sie Zeilenumbrüche und andere Steuerzeichen.',
  notAscii:
    'Verwenden Sie nur Buchstaben von A bis Z ohne Akzente und Umlaute, Ziffern und gängige Sonderzeichen.',
  oneOf: 'Geben Sie einen dieser Werte ein: {limit}.',
  onlyCharacters: 'Nur die Zeichen „{limit}“ sind erlaubt.',
  wrongLength: 'Die Anzahl der Zeichen muss {limit} sein.',
  wrongForm: 'Der Wert hat nicht die erwartete Form.',
  notAddress:
    'Geben Sie eine Adresse ein, die mit https:// oder http:// beginnt, ohne Leerzeichen, @, ? und #.',
  example: 'Beispiel: {example}',
  show: 'Eingabe anzeigen oder verbergen',
  apiKey: 'API-Schlüssel',
  apiKeyHelp: 'Sie finden ihn in den Einstellungen Ihres Kontos bei {provider}.',
  username: 'Benutzername',
  password: 'Passwort',
  client_id: 'Client-ID',
  client_secret: 'Client-Geheimnis',
  clientHelp: 'Ihr Konto bei {provider} stellt beides aus, meist unter „Entwickler“ oder „API“.',
  formRefused:
    '{provider} hat diese Zugangsdaten nicht angenommen. Prüfen Sie sie und versuchen Sie es erneut.',
  formUntested:
    '{provider} war nicht erreichbar, daher wurden diese Zugangsdaten nicht geprüft. Versuchen Sie es später noch einmal.',
  waitingTitle: 'Fahren Sie im Pop-up-Fenster fort',
  waitingText: 'Melden Sie sich dort bei {provider} an. Danach geht es hier automatisch weiter.',
  lateText:
    'Dieser Link ist abgelaufen. Sie können den Vorgang im Pop-up-Fenster noch abschließen; danach geht es hier automatisch weiter. Falls das Fenster geschlossen ist, fordern Sie einen neuen Link an: {app}.',
  closedTitle: 'Das Pop-up-Fenster ist geschlossen',
  closedText:
    'Falls Sie sich dort noch anmelden, fahren Sie fort. Falls Sie es geschlossen haben, versuchen Sie es erneut.',
  blockedTitle: 'Ihr Browser hat das Fenster blockiert',
  blockedText: 'Öffnen Sie es mit der Schaltfläche unten.',
  open: '{provider} öffnen',
  showAgain: 'Fenster erneut öffnen',
  underWay:
    'Sie haben {provider} geöffnet, aber es kam noch keine Antwort. Mögliche Gründe stehen unten. Sie können es jederzeit erneut versuchen.',
  hints: 'Zeigt {provider} einen Fehler?',
  hintUnverified: '„Diese App ist nicht überprüft“',
  hintUnverifiedText:
    '{provider} hat die Anwendung noch nicht geprüft. Wenn Sie ihr vertrauen, wählen Sie „Erweitert“ und fahren Sie fort.',
  hintTesters: '„Zugriff blockiert“, oder die App ist im Test',
  hintTestersText: 'Die Betreiber müssen Ihr Konto als Tester hinzufügen oder die App veröffentlichen.',
  hintPolicy: 'Eine Richtlinie Ihrer Organisation (admin_policy_enforced, org_internal)',
  hintPolicyText: 'Bitten Sie Ihre Administration, die Anwendung zu erlauben.',
  hintAccount: 'Das falsche Konto',
  hintAccountText:
    'Wählen Sie dort „Anderes Konto verwenden“, oder melden Sie sich zuerst bei {provider} ab.',
  hintSetup: 'redirect_uri_mismatch, invalid_client oder deleted_client',
  hintSetupText:
    'Die Anwendung ist falsch eingerichtet. Wenden Sie sich an den Support; die Weiterleitungsadresse ist {redirect}.',
  hintBrowser: 'disallowed_useragent',
  hintBrowserText: 'Öffnen Sie den Link in einem Browser, nicht in einer anderen App.',
  hintBusy: 'rate_limit_exceeded',
  hintBusyText: 'Zurzeit melden sich zu viele Benutzer an. Versuchen Sie es später erneut.',
  hintNothing: 'Keine Fehlermeldung',
  hintNothingText: 'Schließen Sie das Pop-up-Fenster und versuchen Sie es erneut, so oft Sie möchten.',
  doneTitle: '{name} ist verbunden',
  doneText: 'Sie können diese Seite schließen und zurückkehren: {app}.',
  partTitle: '{name} ist verbunden, aber Berechtigungen fehlen',
  partText:
    'Sie haben Folgendes nicht erlaubt. Einige Funktionen sind deshalb möglicherweise nicht verfügbar:',
  grantRest: 'Fehlende Berechtigungen erteilen',
  without: 'Ohne diese fortfahren',
  sheetTitle: 'Wählen Sie ein Tabellenblatt',
  sheetText: '{name} ist verbunden. Wählen Sie das Tabellenblatt, dessen Zeilen gelesen werden.',
  sheetLink: 'Link der Tabelle',
  sheetLinkHelp: 'Öffnen Sie die Tabelle im Browser und kopieren Sie die Adresse.',
  sheetOpen: 'Tabelle öffnen',
  sheetOr: 'Oder wählen Sie eine dieser Tabellen',
  sheetNone: 'Keine Tabelle gefunden.',
  sheetOther: 'Andere Tabelle wählen',
  sheetTab: 'Blatt',
  sheetHeader: 'Kopfzeile',
  sheetKey: 'Spalte, die die Zeilen identifiziert',
  sheetKeyHelp: 'Zum Beispiel eine Nummer oder E-Mail-Adresse, die in jeder Zeile verschieden ist.',
  sheetKeyNone: 'Keine: den Inhalt der Zeilen verwenden',
  sheetKeyTwice: 'Mehrere Zeilen haben denselben Wert: {keys}.',
  sheetKeyEmpty: 'Einige Zeilen haben keinen Wert.',
  sheetNoColumns:
    'Diese Zeile enthält keine Überschriften. Wählen Sie eine andere Zeile oder ein anderes Blatt.',
  sheetRows: 'Erste Zeilen',
  sheetUse: 'Dieses Blatt verwenden',
  sheetSkip: 'Jetzt nicht',
  sheetUnavailable:
    '{account} kann diese Tabelle nicht lesen. Geben Sie sie für dieses Konto frei oder wählen Sie eine andere. Eine Excel-Datei muss zuerst als Google-Tabelle gespeichert werden.',
  sheetBadLink:
    'Das ist kein Link zu einer Google-Tabelle. Öffnen Sie die Tabelle im Browser und kopieren Sie die vollständige Adresse.',
  sheetScopes: 'Einige Berechtigungen zum Lesen von Tabellen fehlen. Fordern Sie einen neuen Link an.',
  sheetBusy:
    'Google nimmt zurzeit keine weiteren Anfragen an. Warten Sie eine Minute und versuchen Sie es erneut.',
  sheetLate: 'Dieser Link ist abgelaufen, oder es wurde damit bereits ein Blatt gewählt.',
  sheetFault:
    'Das Blatt konnte nicht eingerichtet werden. Versuchen Sie es erneut; schlägt es wieder fehl, fahren Sie ohne Blatt fort.',
  expiredTitle: 'Dieser Link ist abgelaufen',
  expiredText:
    'Ein Link ist 30 Minuten gültig. Es wurde kein Konto verbunden. Fordern Sie einen neuen Link an: {app}.',
  unknownTitle: 'Dieser Link ist ungültig',
  unknownText:
    'Er wurde möglicherweise widerrufen oder ist seit Längerem abgelaufen. Fordern Sie in der Anwendung einen neuen Link an.',
  incompleteTitle: 'Dieser Link ist unvollständig',
  incompleteText:
    'Ein Teil des Links fehlt. Öffnen Sie ihn genau so, wie Sie ihn von der Anwendung erhalten haben.',
  unreachableTitle: 'Der Dienst ist nicht erreichbar',
  unreachableText: 'Prüfen Sie Ihre Internetverbindung und versuchen Sie es erneut.',
  faultTitle: 'Ein Fehler ist aufgetreten',
  faultText:
    'Sie sind nicht die Ursache. Versuchen Sie es erneut; tritt der Fehler wieder auf, senden Sie die Meldung unten an den Support.',
  said: 'Meldung',
  deniedTitle: 'Der Zugriff wurde verweigert',
  deniedText:
    '{provider} meldet, dass der Zugriff verweigert wurde. Es wurde kein Konto verbunden. Falls dies ein Versehen war, versuchen Sie es erneut und erlauben Sie den Zugriff.',
  blockedByAdminTitle: 'Ihre Organisation erlaubt das nicht',
  blockedByAdminText:
    '{provider} verweigert den Zugriff wegen einer Richtlinie Ihrer Administration. Bitten Sie um Erlaubnis und versuchen Sie es dann erneut.',
  misconfiguredTitle: 'Die Anwendung ist falsch eingerichtet',
  misconfiguredText:
    '{provider} nimmt die Einstellungen der Anwendung nicht an. Ihr Konto ist nicht die Ursache. Senden Sie die Meldung unten an den Support.',
  tooLateTitle: 'Diese Anmeldung ist abgelaufen',
  tooLateText:
    'Es ist zu viel Zeit vergangen, oder die Seite wurde zweimal geladen. Versuchen Sie es erneut.',
  refusedTitle: '{provider} nimmt dieses Konto nicht an',
  refusedText:
    'Sie haben den Zugriff erlaubt, aber dieses Konto kann die benötigten Funktionen nicht verwenden. Versuchen Sie ein anderes Konto, oder wenden Sie sich an {provider}.',
  busyTitle: '{provider} antwortet nicht',
  busyText:
    'Die Verbindung ist fehlgeschlagen. Es wurde kein Konto verbunden. Warten Sie eine Minute und versuchen Sie es erneut.',
  oddTitle: '{provider} hat eine unerwartete Antwort gesendet',
  oddText:
    'Es wurde kein Konto verbunden. Versuchen Sie es erneut; tritt der Fehler wieder auf, senden Sie die Meldung unten an den Support.',
  otherAccountTitle: 'Das ist ein anderes Konto',
  otherAccountText: 'Es wurde nichts geändert. Versuchen Sie es erneut und wählen Sie das erwartete Konto.',
  noAccountTitle: 'Das Konto konnte nicht erkannt werden',
  noAccountText:
    '{provider} hat das Konto nicht genannt, deshalb konnte es nicht verglichen werden. Wenden Sie sich an den Support.',
  otherBrowserTitle: 'Dies wurde in einem anderen Browser begonnen',
  otherBrowserText:
    'Ein Link funktioniert nur in dem Browser, in dem Sie begonnen haben, und nur mit Cookies. Fahren Sie dort fort, oder fordern Sie einen neuen Link an.',
  failedTitle: 'Die Verbindung ist fehlgeschlagen',
  failedText:
    'Versuchen Sie es erneut. Tritt der Fehler wieder auf, senden Sie die Meldung unten an den Support.',
  goneTitle: 'Diese Verbindung gibt es nicht mehr',
  goneText: 'Sie wurde gelöscht. Verbinden Sie das Konto in der Anwendung neu.',
  otherThingTitle: 'Dieser Link gilt für ein anderes Konto oder eine andere Integration',
  otherThingText: 'Fordern Sie einen neuen Link an: {app}.',
};
