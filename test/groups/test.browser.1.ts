import { keepBrowser } from '../support/browser.ts';
import { openGroup } from '../support/group.ts';

keepBrowser();
openGroup(import.meta.filename);
