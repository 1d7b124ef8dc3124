/** The keys of the connect page's texts (`web/connect/texts/`), by the placeholder that a text may contain besides {app}. */
const keysByPlaceholder = {
  app: `
    theApplication language close loading back backToApp tryAgain finish chooseTitle search showMore
    nothingTitle nothingText test testHelp for at connect howTo somethingElse optional needed show
    apiKey username password client_id client_secret waitingTitle lateText closedTitle closedText blockedTitle
    blockedText showAgain hintUnverified hintTesters hintTestersText hintPolicy hintPolicyText hintAccount
    hintSetup hintBrowser hintBrowserText hintBusy hintBusyText hintNothing hintNothingText doneText partText
    grantRest without sheetTitle sheetLink sheetLinkHelp sheetOpen sheetOr sheetNone sheetOther sheetTab
    sheetHeader sheetKey sheetKeyHelp sheetKeyNone sheetKeyEmpty sheetNoColumns sheetRows sheetUse sheetSkip
    sheetBadLink sheetScopes sheetBusy sheetLate sheetFault expiredTitle expiredText unknownTitle unknownText
    incompleteTitle incompleteText unreachableTitle unreachableText faultTitle faultText said deniedTitle
    blockedByAdminTitle misconfiguredTitle tooLateTitle tooLateText busyText oddText otherAccountTitle
    otherAccountText noAccountTitle otherBrowserTitle otherBrowserText failedTitle failedText goneTitle
    goneText otherThingTitle otherThingText controlCharacters notAscii wrongForm notAddress
  `,
  message: 'doesNotFit',
  limit: 'tooLong oneOf onlyCharacters wrongLength',
  example: 'example',
  search: 'nothingFits',
  name: 'connectTitle reconnectTitle doneTitle partTitle sheetText',
  provider: `
    intro introForm willAsk willAskMore continueTo apiKeyHelp clientHelp formRefused formUntested waitingText open underWay
    hints hintUnverifiedText hintAccountText deniedText blockedByAdminText misconfiguredText refusedTitle
    refusedText busyTitle oddTitle noAccountText
  `,
  email: 'accountSame accountReplaceable accountEndUser',
  redirect: 'hintSetupText',
  keys: 'sheetKeyTwice',
  account: 'sheetUnavailable',
};

/** The placeholders that each text may contain. A test compares keys and placeholders with the texts. */
export const textKeys: Readonly<Record<string, readonly string[]>> = Object.fromEntries(
  Object.entries(keysByPlaceholder).flatMap(([placeholder, keys]) =>
    keys.match(/\w+/g)!.map((key) => [key, [...new Set(['app', placeholder])]]),
  ),
);
