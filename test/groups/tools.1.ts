import { openGroup } from '../support/group.ts';

openGroup(import.meta.filename);
